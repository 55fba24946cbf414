// The page: sections by what its data has.

const data = JSON.parse(document.getElementById("data").textContent);

function planSections(plan, command) {
  const pages = pagesSection(plan, { title: "Pages, and what lands where" });
  return [headSection(plan, command), pages.node, ...restOf(plan, pages)];
}

/** A change: what it is, the first pages of both plans that differ, then all that is new. */
function changeSections(plan, before, change, command) {
  const [now, then] = [firstMoved(plan, before), firstMoved(before, plan)];
  const head = [headSection(plan, command, before), changeSection(change)];
  if (!now && !then) {
    const same = pagesSection(plan, { title: "Pages, each as in the plan before" });
    return [...head, same.node, ...restOf(plan, same)];
  }
  const after = pagesSection(plan, { title: "Pages after", other: before, at: now });
  const old = pagesSection(before, { title: "Pages before", other: plan, at: then });
  return [...head, after.node, old.node, ...restOf(plan, after)];
}

function restOf(plan, pages) {
  let spans = spansSection(plan, 0);
  const show = (reader) => {
    const fresh = spansSection(plan, reader);
    spans.replaceWith(fresh);
    spans = fresh;
  };
  pages.node.addEventListener("reader", (event) => show(event.detail));
  const choose = (reader) => {
    pages.show(reader);
    pages.node.scrollIntoView({ block: "start" });
  };
  return [readsSection(plan, choose), costSection(plan), spans, groupsSection(plan), proofSection(plan)];
}

function sections({ plan, before, change, matrix, command }) {
  if (matrix) return matrixSections(matrix, command);
  return before ? changeSections(plan, before, change, command) : planSections(plan, command);
}

document.getElementById("page").replaceChildren(patterns(), ...sections(data));
