# The gate over HTTP and MCP, as a user without rights on a file system that may be read-only.
#
#   docker build -t isr-rag .                            with the model inside
#   docker build -t isr-rag --target without-model .     with the model mounted at /model
#
# On x86, give the index of torch's CPU builds as --build-arg TORCH_INDEX=URL: the default index brings gigabytes for GPUs.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
RUN python -m venv /opt/isr-rag
COPY constraints.txt ./
RUN /opt/isr-rag/bin/pip install --constraint constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY isr_rag isr_rag
COPY server server
RUN /opt/isr-rag/bin/pip install --constraint constraints.txt '.[local,cli]' ./server

FROM build AS model
RUN ISR_RAG_CACHE=/model /opt/isr-rag/bin/isr-rag setup

FROM python:${PYTHON}-slim AS without-model
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
