# One image for each job: make images, or by hand
#
#   make build image-files && docker build --build-arg CMD=httpsource-sync -t httpsource-sync .
#
# The binaries are static and come from the Go toolchain of whoever builds, so there
# is no stage that compiles and no base image to pull: docs/decisions/1101-*.md.
FROM scratch

ARG CMD
ARG VERSION=devel
ARG REVISION=unknown
LABEL org.opencontainers.image.title="${CMD}" \
      org.opencontainers.image.description="Migration of a Kyma cluster from the Event Bus to the event mesh" \
      org.opencontainers.image.source="https://github.com/kyma-project/eventmesh-migration" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

COPY bin/image/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY bin/image/${CMD} /job
# Of this project, and of all modules that the binary is linked from.
COPY bin/image/licenses/${CMD} /licenses

# A number, so that runAsNonRoot can tell that it is not root's.
USER 65532:65532
ENTRYPOINT ["/job"]
