"""What differs between plans, by meaning: rules, facts of one plan, changes between two, a review of many."""
