// Keeps the page as the cluster is: takes over the sections that changed, without loading the page again.
"use strict";

(() => {
  const AGAIN = 10_000; // ms until a stream that was refused is asked for again
  const main = document.getElementById("content");
  const live = document.getElementById("live");
  let version = main.dataset.version;
  let source = null;
  let waiting = 0;

  // What has the focus keeps it, if it is still there.
  const place = (element) => element && (element.id || element.getAttribute("href"));
  const focusAgain = (section, wanted) => {
    const same = [...section.querySelectorAll("[id], a[href], [tabindex]")].find((one) => place(one) === wanted);
    if (same) same.focus({ preventScroll: true });
  };

  const take = (fresh, old) => {
    if (old.isEqualNode(fresh)) return;
    const wanted = old.contains(document.activeElement) ? place(document.activeElement) : null;
    const scrolled = [...old.querySelectorAll(".scrolls")].map((one) => one.scrollLeft);
    old.replaceWith(fresh);
    fresh.querySelectorAll(".scrolls").forEach((one, index) => { one.scrollLeft = scrolled[index] || 0; });
    if (wanted) focusAgain(fresh, wanted);
  };

  // The sections in their new order; one that is there already is taken over only if it changed.
  const show = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    const ids = [...template.content.children].map((one) => one.id);
    if (ids.join() === [...main.children].map((one) => one.id).join()) {
      [...template.content.children].forEach((fresh, index) => take(fresh, main.children[index]));
      return;
    }
    const wanted = main.contains(document.activeElement) ? place(document.activeElement) : null;
    main.replaceChildren(template.content);
    if (wanted) focusAgain(main, wanted);
  };

  const close = () => {
    clearTimeout(waiting);
    if (source) source.close();
    source = null;
  };

  const open = () => {
    close();
    if (document.hidden) return; // a browser has few connections to one server
    const query = new URLSearchParams(location.search);
    query.set("format", "stream");
    query.set("version", version);
    source = new EventSource(`?${query}`);
    source.onopen = () => { live.textContent = "live"; };
    source.onmessage = (message) => {
      const page = JSON.parse(message.data);
      version = page.version;
      document.title = page.title;
      show(page.main);
    };
    source.onerror = () => {
      live.textContent = "not live: the server can't be reached";
      close(); // with the version of today, rather than that of the first time
      waiting = setTimeout(open, AGAIN);
    };
  };

  document.addEventListener("visibilitychange", open);
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
})();
