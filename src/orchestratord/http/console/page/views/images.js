// Images of a chat message. They go to the server inside the request and nowhere else.
import { h, setText } from "../dom.js";

const dataUrlOf = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(file);
});

export class ImagePicker {
  constructor() {
    this.urls = [];
    this.list = h("div", { class: "thumbnails" });
    this.problem = h("p", { class: "field-error", role: "alert" });
    const input = h("input", { type: "file", accept: "image/png,image/jpeg", multiple: true, id: "images", onchange: async () => {
      await this.add([...input.files]);
      input.value = "";
    } });
    this.node = h("div", { class: "field", hidden: true }, h("label", { for: "images" }, "Images (PNG, JPEG)"), input, this.list, this.problem);
  }

  async add(files) {
    setText(this.problem, "");
    for (const file of files) {
      try {
        this.urls.push(await dataUrlOf(file));
      } catch {
        setText(this.problem, `${file.name} cannot be read.`);
      }
    }
    this.draw();
  }

  draw() {
    this.list.replaceChildren(...this.urls.map((url, i) => h("button", {
      type: "button", class: "thumbnail", "aria-label": `Remove image ${i + 1}`, onclick: () => {
        this.urls.splice(i, 1);
        this.draw();
      },
    }, h("img", { src: url, alt: "" }))));
  }

  set(urls) {
    this.urls = urls;
    this.draw();
  }

  // `content` of a message with this text.
  contentWith(text) {
    if (this.urls.length === 0) return text;
    return [...this.urls.map((url) => ({ type: "image_url", image_url: { url } })), { type: "text", text }];
  }
}
