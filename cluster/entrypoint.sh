#!/usr/bin/env bash
# The entry point of the image: the name of a command of platform/ runs it, and anything else is run as it is.
set -euo pipefail

# A Ray that is started here needs a token; one of its own unless the cluster's is given.
if [ "${RAY_AUTH_MODE:-}" = token ] && [ -z "${RAY_AUTH_TOKEN:-}${RAY_AUTH_TOKEN_PATH:-}" ] && [ ! -f ~/.ray/auth_token ]; then
    RAY_AUTH_TOKEN="$(python -c 'import secrets; print(secrets.token_hex(32))')"
    export RAY_AUTH_TOKEN
fi

HERE="$(dirname "$(readlink -f "$0")")/.."
if [ $# -gt 0 ] && [[ "$1" =~ ^[a-z]+$ ]] && [ -f "$HERE/platform/$1.py" ]; then
    command="$1"
    shift
    cd "$HERE"
    exec python -m "platform.$command" "$@"
fi
exec "$@"
