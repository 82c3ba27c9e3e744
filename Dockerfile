# The gate over HTTP and MCP, as a user without rights on a file system that may be read-only.
#
#   docker build -t isr-rag .                            with the model inside
#   docker build -t isr-rag --target without-model .     with the model mounted at /model
#
# On x86, give the index of torch's CPU builds as --build-arg TORCH_INDEX=URL: the default index brings gigabytes for GPUs.
# Everything but a torch from there is checked by hash.
ARG PYTHON=3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea

FROM python:${PYTHON} AS build
ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
RUN python -m venv /opt/isr-rag
COPY constraints.txt ./
COPY deploy/torch.txt torch.txt
COPY deploy/requirements.txt requirements.txt
COPY deploy/build.txt build.txt
RUN if [ "$TORCH_INDEX" ]; then \
      /opt/isr-rag/bin/pip install --constraint constraints.txt --index-url "$TORCH_INDEX" torch==2.13.0; \
    else /opt/isr-rag/bin/pip install --require-hashes --no-deps --requirement torch.txt; fi
RUN /opt/isr-rag/bin/pip install --require-hashes --no-deps --requirement requirements.txt
RUN python -m venv tools && tools/bin/pip install --require-hashes --no-deps --requirement build.txt
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY isr_rag isr_rag
COPY server server
RUN tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir wheels . ./server
RUN /opt/isr-rag/bin/pip install --no-deps wheels/*.whl

FROM build AS model
RUN ISR_RAG_CACHE=/model /opt/isr-rag/bin/isr-rag setup

FROM python:${PYTHON} AS without-model
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin isr-rag && install -d -o 10001 -g 10001 /log
COPY --from=build /opt/isr-rag /opt/isr-rag
ENV PATH=/opt/isr-rag/bin:$PATH ISR_RAG_CACHE=/model HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=90s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["isr-rag"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]

FROM without-model
COPY --from=model /model /model
