"""An API that verifies signatures of AWS with botocore. Prints its port.

The key is `AKIDEXAMPLE` with the secret `canary-secret` and the session token `canary-token`. The
cursor of a page has characters that have to be encoded.
"""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

CURSORS = ["", "a b+c/d=e&é~(f)", "%25"]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        fields = dict(part.split("=", 1) for part in self.headers["Authorization"].replace(",", "").split()[1:])
        _, _, region, service, _ = fields["Credential"].split("/")
        headers = {name: self.headers[name] for name in fields["SignedHeaders"].split(";")}
        url = f"http://{self.headers['Host']}{self.path}"
        request = AWSRequest(method="GET", url=url, headers=headers, data=b"")
        request.context["timestamp"] = self.headers["X-Amz-Date"]
        auth = SigV4Auth(Credentials("AKIDEXAMPLE", "canary-secret", "canary-token"), service, region)
        text = auth.string_to_sign(request, auth.canonical_request(request))
        is_right = auth.signature(text, request) == fields["Signature"]
        is_right = is_right and self.headers["X-Amz-Security-Token"] == "canary-token"
        if not is_right:
            return self.answer(403, {"message": "SignatureDoesNotMatch", "got": self.headers["Authorization"]})
        number = CURSORS.index(parse_qs(urlsplit(self.path).query).get("after", [""])[0])
        page = {"items": [{"id": number}]}
        if number + 1 < len(CURSORS):
            page["next"] = CURSORS[number + 1]
        self.answer(200, page)

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
