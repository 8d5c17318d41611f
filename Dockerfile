# Builds an image that runs nplm on a CPU: docker build -t nplm-jax . && docker run --rm nplm-jax --help
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE requirements.txt ./
COPY nplm_jax nplm_jax
COPY configs configs
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir /wheels/*.whl
RUN useradd --create-home --uid 1000 nplm
USER 1000
WORKDIR /home/nplm
ENTRYPOINT ["nplm"]
CMD ["--help"]
