// What servers answer: text, images, sound, links, resources, structured values. All of it is shown as what it is;
// nothing of it is markup, and nothing is loaded from anywhere.
import { JsonTree, LongText, Whole } from "./json.jsx";

/** The longest image or sound that is shown, in characters of base64. */
const MAX_MEDIA = 8 << 20;
const IMAGE = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/i;
const SOUND = /^audio\/[\w.+-]+$/i;
const BASE64 = /^[A-Za-z0-9+/\s]*={0,2}\s*$/;

/** The answer of a tool. */
export function ToolResult({ result, read }) {
  const content = Array.isArray(result.content) ? result.content : [];
  return (
    <section class="result" aria-label="Result">
      {result.isError === true && <p class="error-banner" role="alert">The tool reports an error.</p>}
      {content.map((block, i) => <Block key={i} block={block} read={read} />)}
      {result.structuredContent !== undefined && (
        <>
          <h3>Structured content</h3>
          <JsonTree value={result.structuredContent} />
        </>
      )}
      {content.length === 0 && result.structuredContent === undefined && <p class="dim">The answer is empty.</p>}
      <Whole value={result} />
    </section>
  );
}

/** One block of content. `read` reads a resource that is linked; without it links are only shown. */
export function Block({ block, read }) {
  switch (block?.type) {
    case "text":
      return <LongText text={`${block.text}`} />;
    case "image":
    case "audio":
      return <Media kind={block.type} data={block.data} mimeType={block.mimeType} />;
    case "resource_link":
      return <ResourceLink link={block} read={read} />;
    case "resource":
      return <Contents contents={block.resource ?? {}} />;
    default:
      return <JsonTree value={block} />;
  }
}

function Media({ kind, data, mimeType, name }) {
  const text = typeof data === "string" ? data : "";
  const about = `${mimeType ?? "no type"}, ${size(text)}`;
  const isKnown = (kind === "image" ? IMAGE : SOUND).test(mimeType ?? "");
  if (!isKnown || !BASE64.test(text.slice(0, 1000))) return <p class="dim">Not shown: {kind} of the type {about}.</p>;
  if (text.length > MAX_MEDIA) return <p class="dim">Too large to be shown: {about}.</p>;
  const source = `data:${mimeType.toLowerCase()};base64,${text.replace(/\s/g, "")}`;
  return (
    <figure>
      {kind === "image" ? <img src={source} alt={name ?? "Image from the server"} /> : <audio controls src={source} aria-label={name ?? "Sound from the server"} />}
      <figcaption class="dim">{about}</figcaption>
    </figure>
  );
}

function size(base64) {
  const bytes = Math.floor((base64.length * 3) / 4);
  return bytes < 1024 ? `${bytes} bytes` : `${Math.round(bytes / 1024).toLocaleString()} KiB`;
}

function ResourceLink({ link, read }) {
  return (
    <div class="row item">
      <div>
        <strong>{link.title ?? link.name ?? link.uri}</strong>
        <p class="dim">{[link.uri, link.mimeType, link.description].filter(Boolean).join(" · ")}</p>
      </div>
      {read && <button type="button" onClick={() => read(link)}>Read</button>}
    </div>
  );
}

/** One part of a resource. */
export function Contents({ contents }) {
  const { uri, mimeType, text, blob } = contents;
  const kind = IMAGE.test(mimeType ?? "") ? "image" : "audio";
  return (
    <article class="contents">
      <p class="dim">{[uri, mimeType].filter(Boolean).join(" · ")}</p>
      {typeof text === "string" ? <LongText text={text} /> : <Media kind={kind} data={blob} mimeType={mimeType} name={uri} />}
    </article>
  );
}
