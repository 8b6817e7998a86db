// The search of the site runs in a web worker. Browsers start none for a page that is opened as a file: there the
// worker's script runs in a hidden frame, with the interface of a worker.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.answer = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.frame.srcdoc = `<!doctype html><script>
        postMessage = data => frameElement.answer(data)
        importScripts = async (...urls) => {
          for (const url of urls)
            await new Promise((resolve, reject) => {
              const script = document.createElement("script")
              Object.assign(script, { src: url, onload: resolve, onerror: reject })
              document.head.append(script)
            })
        }
      <\/script><script src="${url}"><\/script>`
      this.loaded = new Promise(resolve => this.frame.addEventListener("load", resolve))
      document.body.append(this.frame)
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
