{{/* Without dots, which names of Services cannot have. */}}
{{- define "volferry.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- $name = .Release.Name -}}
{{- else -}}
{{- $name = printf "%s-%s" .Release.Name $name -}}
{{- end -}}
{{- $name | replace "." "-" | trunc 52 | trimAll "-" -}}
{{- end -}}

{{/* The name of what belongs to the operator, at most 61 characters. */}}
{{- define "volferry.operatorName" -}}
{{- printf "%s-operator" (include "volferry.fullname" .) -}}
{{- end -}}

{{/* The name of what belongs to no namespace, where releases of several namespaces meet: neither part has a dot, so none
can have the name of another. */}}
{{- define "volferry.clusterName" -}}
{{- printf "%s.%s" .Release.Namespace (include "volferry.operatorName" .) | trunc 253 -}}
{{- end -}}

{{- define "volferry.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "volferry.operatorName" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "volferry.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "volferry.syncerImage" -}}
{{- $image := .Values.syncers.image -}}
{{- $repository := default .Values.image.repository $image.repository -}}
{{- if not (or $image.repository $image.tag $image.digest) -}}
{{- include "volferry.image" . -}}
{{- else if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "volferry.selectorLabels" -}}
app.kubernetes.io/name: volferry
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "volferry.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "volferry.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: volferry
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- range $name, $value := omit .Values.commonLabels "helm.sh/chart" "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/part-of" "app.kubernetes.io/managed-by" }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* The labels by which the pod of `helm test` is known, and which select no operator. */}}
{{- define "volferry.testLabels" -}}
app.kubernetes.io/name: volferry
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: test
{{- end -}}

{{/* The restricted PodSecurity standard, with the fields of podSecurityContext over it. */}}
{{- define "volferry.podSecurityContext" -}}
{{- $own := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- /* OpenShift assigns each namespace's users, and refuses others. */}}
{{- $own = omit $own "runAsUser" "runAsGroup" }}
{{- end }}
{{- mergeOverwrite $own .Values.podSecurityContext | toYaml }}
{{- end -}}

{{- define "volferry.containerSecurityContext" -}}
{{- $own := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
{{- mergeOverwrite $own .Values.containerSecurityContext | toYaml }}
{{- end -}}

{{/* On which nodes the pods of the operator and of the populator run. */}}
{{- define "volferry.scheduling" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
