"""cleave-lsp-server, used as an editor does: hover, go to definition and diagnostics of files
with cleave's dialects."""

import json
import os
import pathlib
import subprocess
import unittest

BUILD = pathlib.Path(os.environ.get("CLEAVE_BUILD_DIR", "build")).resolve()
TESTS = pathlib.Path(__file__).resolve().parent.parent
SERVER = BUILD / "bin" / "cleave-lsp-server"
SECONDS = 120  # timeout of an answer

SHARDED = """dist.mesh @m <["tensor"=2]>
func.func @forward(%x: tensor<4x8xf32>,
                   %w: tensor<8x6xf32> {dist.sharding = #dist.sharding<@m, [{"tensor"}, {}]>})
    -> tensor<4x6xf32> {
  %0 = nn.einsum "bi,io->bo" %x, %w : tensor<4x8xf32>, tensor<8x6xf32> -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}
"""


class Client:
    """One session with a server: messages are JSON after a header with their length."""

    def __init__(self):
        self.server = subprocess.Popen([SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL)
        self.count, self.published = 0, {}
        self.request("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        self.notify("initialized", {})

    def write(self, message):
        text = json.dumps({"jsonrpc": "2.0"} | message).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(text) + text)
        self.server.stdin.flush()

    def read(self):
        length = None
        while (line := self.server.stdout.readline().strip()):
            name, value = line.split(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if length is None:
            raise AssertionError("the server ended")
        message = json.loads(self.server.stdout.read(length))
        if message.get("method") == "textDocument/publishDiagnostics":
            self.published[message["params"]["uri"]] = message["params"]["diagnostics"]
        return message

    def notify(self, method, params):
        self.write({"method": method, "params": params})

    def request(self, method, params):
        self.count += 1
        self.write({"id": self.count, "method": method, "params": params})
        while (message := self.read()).get("id") != self.count:
            pass
        if "error" in message:
            raise AssertionError(f"{method}: {message['error']}")
        return message["result"]

    def open(self, uri, text):
        """Opens a text; returns the diagnostics that the server publishes for it."""
        self.notify("textDocument/didOpen", {"textDocument": {
            "uri": uri, "languageId": "mlir", "version": 1, "text": text}})
        while uri not in self.published:
            self.read()
        return self.published[uri]

    def close(self):
        self.request("shutdown", None)
        self.notify("exit", None)
        self.server.stdin.close()
        code = self.server.wait(timeout=SECONDS)
        self.server.stdout.close()
        return code


def place(text, what, occurrence=0):
    """The position of an occurrence of `what`, as line and character."""
    at = -1
    for _ in range(occurrence + 1):
        at = text.index(what, at + 1)
    line = text.count("\n", 0, at)
    return {"line": line, "character": at - (text.rfind("\n", 0, at) + 1)}


class Server(unittest.TestCase):
    def setUp(self):
        self.client = Client()
        self.addCleanup(self.end)

    def end(self):
        self.client.server.kill()
        self.client.server.wait()
        self.client.server.stdin.close()
        self.client.server.stdout.close()

    def at(self, uri, text, what, occurrence=0):
        return {"textDocument": {"uri": uri}, "position": place(text, what, occurrence)}

    def test_a_test_file(self):
        path = TESTS / "Inputs" / "mlp.mlir"
        uri, text = path.as_uri(), path.read_text()
        self.assertEqual(self.client.open(uri, text), [])

        hover = self.client.request("textDocument/hover", self.at(uri, text, "nn.einsum"))
        self.assertIn("nn.einsum", hover["contents"]["value"])
        self.assertIn("tensor<8x10xf32>", hover["contents"]["value"])
        hover = self.client.request("textDocument/hover", self.at(uri, text, "%w1", 1))
        self.assertIn("tensor<6x10xf32>", hover["contents"]["value"])

        # From the use in the first product to the argument.
        found = self.client.request("textDocument/definition", self.at(uri, text, "%w1", 1))
        self.assertEqual([(one["uri"], one["range"]["start"]) for one in found],
                         [(uri, place(text, "%w1"))])
        # From the use of a result to the operation.
        found = self.client.request("textDocument/definition", self.at(uri, text, "%3", 1))
        self.assertEqual([one["range"]["start"] for one in found], [place(text, "%3")])

        self.assertEqual(self.client.close(), 0)

    def test_the_mesh_of_a_sharding(self):
        uri = "file:///sharded.mlir"
        self.assertEqual(self.client.open(uri, SHARDED), [])
        hover = self.client.request("textDocument/hover", self.at(uri, SHARDED, "dist.mesh"))
        self.assertIn("dist.mesh", hover["contents"]["value"])
        found = self.client.request("textDocument/definition", self.at(uri, SHARDED, "@m", 1))
        self.assertEqual([one["range"]["start"] for one in found], [place(SHARDED, "dist.mesh")])

    def test_broken_files(self):
        lost = SHARDED.replace("einsum", "einsun")
        unknown = self.client.open("file:///unknown.mlir", lost)
        self.assertEqual(len(unknown), 1, unknown)
        self.assertIn("nn.einsun", unknown[0]["message"])
        self.assertEqual(unknown[0]["range"]["start"], place(lost, "nn.einsun"))

        # A diagnostic of a cleave verifier.
        wrong = SHARDED.replace('"bi,io->bo"', '"bi,ko->bo"')
        refused = self.client.open("file:///wrong.mlir", wrong)
        self.assertIn("label 'i' of one operand is missing in the result",
                      refused[0]["message"])
        self.assertEqual(refused[0]["range"]["start"]["line"], place(wrong, "nn.einsum")["line"])
        self.assertEqual(refused[0]["severity"], 1)


if __name__ == "__main__":
    unittest.main()
