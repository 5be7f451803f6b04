# The command line without a checkout, for what only reads: plan, explain, disrupt, validate, status, top.
# `make dist` first; .dockerignore lets the wheel through and nothing else.
FROM python:3.13-slim

COPY dist/shiplap-*-py3-none-any.whl /wheel/
RUN pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore /wheel/*.whl \
    && rm -r /wheel \
    && useradd --uid 10001 --create-home shiplap

# The user by number, so that `runAsNonRoot` can tell. Its home is where kubeconfig and AWS profile are looked for.
USER 10001
WORKDIR /work
ENTRYPOINT ["shiplap"]
CMD ["--help"]
