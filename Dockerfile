# CPU image, without root:
#     docker build --tag capspoe --build-arg PIP_EXTRA_INDEX_URL=ADDRESS .
#     docker run --rm -it -v "$PWD/runs:/home/capspoe/runs" capspoe train mnist
# ADDRESS is PyTorch's package index for CPUs (see its installation page). Without it, pip installs the build for GPUs,
# which works too but takes gigabytes.
# The explorer listens on the container's loopback interface. To reach it, use `docker run --network host`, or
# `-p 127.0.0.1:8765:8765` with `capspoe explore RUN --no-browser --host 0.0.0.0`.
FROM python:3.11-slim-bookworm

RUN useradd --create-home --uid 1000 capspoe && install -d -o capspoe /home/capspoe/runs
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
ARG PIP_EXTRA_INDEX_URL
RUN pip install --no-cache-dir --constraint constraints.txt .

USER 1000
WORKDIR /home/capspoe
ENTRYPOINT ["capspoe"]
CMD ["--help"]
