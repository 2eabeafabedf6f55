// Node without any package.
const answer = await fetch(`${process.env.OPENAI_BASE_URL}/chat/completions`, {
  method: "POST",
  headers: { "content-type": "application/json", authorization: "Bearer none" },
  body: JSON.stringify({
    model: "scripted-1",
    messages: [{ role: "user", content: "How is the weather in Oslo?" }],
    stream: true,
  }),
});
let said = "";
let rest = "";
for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
  const frames = (rest + text).split("\n\n");
  rest = frames.pop();
  for (const frame of frames) {
    if (frame.startsWith("data: {")) said += JSON.parse(frame.slice(6)).choices[0]?.delta?.content ?? "";
  }
}
console.log(said);
