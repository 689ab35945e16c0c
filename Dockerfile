FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/foldlog
COPY deploy/requirements.lock ./
RUN /opt/foldlog/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY package/ package/
COPY eventlog/ eventlog/
COPY projections/ projections/
COPY runtime/ runtime/
COPY adapters/ adapters/
COPY replay/ replay/
RUN /opt/foldlog/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 foldlog
COPY --from=build /opt/foldlog /opt/foldlog
# Where `foldlog worker MODULE:REGISTRY` finds modules that are not installed.
WORKDIR /app
COPY --chown=foldlog examples/ examples/
ENV PATH=/opt/foldlog/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1
USER foldlog
ENTRYPOINT ["foldlog"]
CMD ["--help"]
