# syntax=docker/dockerfile:1
# The operator's image. A test (e2e/tests/chart/image.rs) compares the last stage with the image that the test cluster
# runs, which is made without Docker. For several platforms, build on each of them: .github/workflows/release.yaml does.
#
#   docker build -t routewright .
#
# The base images are named by tag: their digests change with every security update, and a build of one's own may pin them.

FROM rust:1.95-bookworm AS build
ARG TARGETPLATFORM
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target,id=target-${TARGETPLATFORM} \
    cargo build --locked --release -p routewright --bin routewright \
    && install -D -m 0755 target/release/routewright /out/routewright

# glibc, certification authorities, /tmp and the user nonroot; no shell and no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/routewright /usr/local/bin/routewright
USER 65532:65532
WORKDIR /
EXPOSE 8080 8081
ENTRYPOINT ["/usr/local/bin/routewright"]
