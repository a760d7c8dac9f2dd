"""A token endpoint with all grants and an API behind it, by Authlib. Prints its port.

The client is `robot` with the secret `canary-secret`, the user `alice` with the password
`canary-pass`. The refresh token `canary-refresh` is replaced with each use. Statements are verified
with the key in `public.pem`. An access token is accepted for two requests. Each request for a token
is a line of `grants.log`.
"""

import os

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import grants
from authlib.oauth2.rfc7523 import JWTBearerGrant
from flask import Flask, jsonify, request
from joserfc.jwk import import_key
from werkzeug.serving import make_server

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"


class User:
    def get_user_id(self):
        return "alice"


class Client:
    client_id = "robot"

    def get_client_id(self):
        return self.client_id

    def get_allowed_scope(self, scope):
        return scope

    def check_redirect_uri(self, uri):
        return False

    def check_client_secret(self, secret):
        return secret == "canary-secret"

    def check_endpoint_auth_method(self, method, endpoint):
        return method in ("client_secret_basic", "client_secret_post")

    def check_response_type(self, kind):
        return False

    def check_grant_type(self, kind):
        return True


class Refresh:
    def check_client(self, client):
        return True

    def get_scope(self):
        return "read"


refresh_tokens = {"canary-refresh"}
uses = {}


def save(token, request):
    uses[token["access_token"]] = 0
    if "refresh_token" in token:
        refresh_tokens.add(token["refresh_token"])


app = Flask("tokens")
server = AuthorizationServer(app, query_client=lambda id: Client() if id == "robot" else None, save_token=save)
app.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = True
server.init_app(app)


class ByPassword(grants.ResourceOwnerPasswordCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "client_secret_post"]

    def authenticate_user(self, username, password):
        return User() if (username, password) == ("alice", "canary-pass") else None


class ByRefresh(grants.RefreshTokenGrant):
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, token):
        self.token = token
        return Refresh() if token in refresh_tokens else None

    def authenticate_user(self, token):
        return User()

    def revoke_old_credential(self, token):
        refresh_tokens.discard(self.token)


class ByStatement(JWTBearerGrant):
    def resolve_issuer_client(self, issuer):
        return Client() if issuer == "robot" else None

    def resolve_client_public_key(self, client):
        with open("public.pem") as file:
            text = file.read()
        return import_key(text, "RSA" if os.path.exists("rsa") else "EC")

    def authenticate_user(self, subject):
        return User()

    def get_audiences(self):
        return [request.base_url]

    def has_granted_permission(self, client, user):
        return True


for grant in [grants.ClientCredentialsGrant, ByPassword, ByRefresh, ByStatement]:
    server.register_grant(grant)


@app.post("/token")
def token():
    with open("grants.log", "a") as file:
        print(request.form["grant_type"], file=file)
    return server.create_token_response()


@app.get("/items")
def items():
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if uses.get(token, 2) >= 2:
        return "", 401
    uses[token] += 1
    page = int(request.args["page"])
    return jsonify([{"id": page}] if page < 5 else [])


web = make_server("127.0.0.1", 0, app, threaded=True)
print(web.server_port, flush=True)
web.serve_forever()
