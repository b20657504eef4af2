{{- define "nats.conf" -}}
{{- $name := printf "%s-nats" .Values.global.prefix }}
{{- $headless := printf "%s-headless.%s.svc" $name .Release.Namespace -}}
server_name: $POD_NAME
port: 4222
http_port: 8222
pid_file: /run/nats/nats.pid
max_payload: {{ int64 .Values.maxPayload }}
max_pending: {{ int64 .Values.maxPending }}
# A client whose node is gone closes no connection. By default, events are sent to it for minutes.
ping_interval: 5s
ping_max: 2
lame_duck_grace_period: 5s
lame_duck_duration: 30s

tls {
  cert_file: /etc/nats/tls/tls.crt
  key_file: /etc/nats/tls/tls.key
  ca_file: /etc/nats/tls/ca.crt
}

jetstream {
  store_dir: /data
  max_file_store: {{ .Values.maxFileStore }}
  max_memory_store: {{ .Values.maxMemoryStore }}
  sync_interval: {{ .Values.syncInterval }}
  # Each Subscription has a consumer: by default, nats-server takes 1,000 of a stream.
  limits { default_max_consumers: -1 }
}
{{- if gt (int .Values.replicas) 1 }}

cluster {
  name: {{ $name }}
  port: 6222
  routes: [
    {{- range $i := until (int .Values.replicas) }}
    tls://{{ $name }}-{{ $i }}.{{ $headless }}:6222
    {{- end }}
  ]
  tls {
    cert_file: /etc/nats/tls/tls.crt
    key_file: /etc/nats/tls/tls.key
    ca_file: /etc/nats/tls/ca.crt
    verify: true
  }
}
{{- end }}

# Each user may do what its program does, and nothing else. Here are public keys only.
system_account: SYSTEM
accounts {
  SYSTEM {
    users: [
      {
        nkey: {{ .Values.users.system }}
        permissions { publish: ["$SYS.REQ.SERVER.*.RELOAD", "$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.>"], subscribe: ["_INBOX.system.>"] }
      }
    ]
  }
  EVENTING {
    jetstream: enabled
    users: [
      {
        nkey: {{ .Values.users.manager }}
        permissions { publish: ["$JS.API.>", "kyma-closed.barrier"], subscribe: ["_INBOX.manager.>"] }
      }
      {
        nkey: {{ .Values.users.controller }}
        permissions {
          publish: [
            "$JS.API.INFO"
            "$JS.API.STREAM.INFO.sap"
            "$JS.API.STREAM.PURGE.sap"
            "$JS.API.CONSUMER.CREATE.sap.>"
            "$JS.API.CONSUMER.INFO.sap.*"
            "$JS.API.CONSUMER.LIST.sap"
            "$JS.API.CONSUMER.NAMES.sap"
            "$JS.API.CONSUMER.DELETE.sap.*"
            "$JS.API.CONSUMER.MSG.NEXT.sap.*"
            "$JS.API.CONSUMER.PAUSE.sap.*"
            "$JS.ACK.sap.>"
            "kyma.=retry.>"
            "dead-letters.>"
            "$JS.API.STREAM.INFO.dead-letters"
            "$JS.API.STREAM.MSG.GET.dead-letters"
            "$JS.API.STREAM.MSG.DELETE.dead-letters"
            "$JS.API.CONSUMER.CREATE.dead-letters.>"
            "$JS.API.CONSUMER.INFO.dead-letters.*"
            "$JS.API.CONSUMER.DELETE.dead-letters.*"
            "$JS.API.CONSUMER.MSG.NEXT.dead-letters.*"
            "controllers.>"
          ]
          subscribe: ["_INBOX.controller.>", "controllers.>"]
        }
      }
      {
        nkey: {{ .Values.users.publisher }}
        permissions { publish: { allow: ["kyma.>", "$JS.API.STREAM.INFO.sap"], deny: ["kyma.=retry.>"] }, subscribe: ["_INBOX.publisher.>"] }
      }
    ]
  }
}
{{- end -}}
