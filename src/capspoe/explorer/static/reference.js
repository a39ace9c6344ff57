// The API's page: the OpenAPI document, readable.

import { $, applyTheme, el, storedTheme } from "./dom.js";

const table = (rows) => el("table", {}, el("tbody", {}, ...rows.map(([name, what]) => el("tr", {}, el("td", {}, el("code", {}, name)), el("td", {}, what)))));

function endpoint(path, method, operation, schemas) {
  const node = el("div", { class: "panel", id: operation.operationId }, el("div", {}, el("span", { class: "method" }, method.toUpperCase()), el("span", { class: "path" }, path)), el("p", {}, operation.summary));
  if (operation.parameters.length)
    node.append(el("h3", {}, "Parameters"), table(operation.parameters.map((p) => [p.name, `${p.description ?? "its number"}${p.required ? " (required)" : `, ${p.schema.default} unless said`}`])));
  if (operation.requestBody) {
    const name = operation.requestBody.content["application/json"].schema.$ref.split("/").at(-1);
    node.append(el("h3", {}, "Body"), table(Object.entries(schemas[name].properties).map(([key, s]) => [key, describe(s, schemas[name].required.includes(key))])));
    node.append(el("details", {}, el("summary", {}, "JSON schema"), el("pre", {}, el("code", {}, JSON.stringify(schemas[name], null, 2)))));
  }
  const answer = operation.responses["200"].content;
  if (answer["image/png"]) node.append(el("h3", {}, "Answer"), el("p", {}, "A PNG file."));
  else node.append(el("h3", {}, "Answer"), table(Object.entries(answer["application/json"].schema.properties).map(([key, s]) => [key, s.description])));
  return node;
}

function describe(schema, required) {
  const parts = [schema.description ?? schema.type];
  if (schema.default != null) parts.push(`${schema.default} unless said.`);
  if (schema.example) parts.push(`For example ${JSON.stringify(schema.example).slice(0, 60)}`);
  return `${parts.join(" ")}${required ? "" : " (optional)"}`;
}

applyTheme(storedTheme());
const found = await fetch("/api/openapi.json").then((answer) => answer.json()).catch(() => null);
$("about").textContent = found?.info.description ?? "The server does not answer. Start it again with capspoe explore, then load this page anew.";
$("example").textContent = `import base64, io, requests
from PIL import Image

server = "${location.origin}"
answer = requests.post(f"{server}/api/recognise", json={"image": {"index": 7}}).json()
print(answer["winner"], max(answer["on"]))

on = {str(answer["winner"]): answer["values"][answer["winner"]]}
painted = requests.post(f"{server}/api/paint", json={"on": on}).json()["image"]
Image.open(io.BytesIO(base64.b64decode(painted.split(",")[1])))`;
for (const [path, methods] of Object.entries(found?.paths ?? {}))
  for (const [method, operation] of Object.entries(methods)) $("endpoints").append(endpoint(path, method, operation, found.components.schemas));
document.documentElement.dataset.ready = "true";
