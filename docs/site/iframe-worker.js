// The search of these pages runs in a worker. Browsers start none for a page that is opened from disk: there its script
// runs in a hidden frame, and messages go to and fro as a worker's do.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(script) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc =
        "<script>self.postMessage = (data) => frameElement.answer(data)</script>" +
        `<script src="${new URL(script, location)}"></script>`;
      this.frame.answer = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve));
      document.body.append(this.frame);
    }

    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.onmessage?.({ data: structuredClone(data) });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
