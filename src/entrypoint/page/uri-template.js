// URI templates (RFC 6570), with texts as values. Pure.

const EXPRESSION = /\{([+#./;?&]?)([^{}]*)\}/g;
const OPERATORS = {
  "": { first: "", separator: "," },
  "+": { first: "", separator: ",", isReserved: true },
  "#": { first: "#", separator: ",", isReserved: true },
  ".": { first: ".", separator: "." },
  "/": { first: "/", separator: "/" },
  ";": { first: ";", separator: ";", isNamed: true, ifEmpty: "" },
  "?": { first: "?", separator: "&", isNamed: true, ifEmpty: "=" },
  "&": { first: "&", separator: "&", isNamed: true, ifEmpty: "=" },
};

function variablesIn(list) {
  return list.split(",").map((variable) => {
    const [, name, length] = /^(.*?)(?:\*|:(\d{1,4}))?$/s.exec(variable.trim());
    return { name, length: length && Number(length) };
  });
}

/** The names of the variables, each once. */
export function variablesOf(template) {
  const names = [...template.matchAll(EXPRESSION)].flatMap(([, , list]) => variablesIn(list).map(({ name }) => name));
  return [...new Set(names.filter(Boolean))];
}

const encode = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`);
const encodeReserved = (text) => encodeURI(text).replace(/%25([0-9a-f]{2})/gi, "%$1").replaceAll("%5B", "[").replaceAll("%5D", "]");

/** The URI with the values put in; variables without one are left out. */
export function expand(template, values) {
  return template.replace(EXPRESSION, (_, operator, list) => {
    const { first, separator, isReserved, isNamed, ifEmpty } = OPERATORS[operator];
    const parts = variablesIn(list)
      .filter(({ name }) => Object.hasOwn(values, name) && values[name] !== undefined)
      .map(({ name, length }) => {
        const value = (isReserved ? encodeReserved : encode)([...values[name]].slice(0, length).join(""));
        if (!isNamed) return value;
        return value === "" ? `${name}${ifEmpty}` : `${name}=${value}`;
      });
    return parts.length > 0 ? first + parts.join(separator) : "";
  });
}
