# Makes the Kubernetes cluster that kubectl reaches an edge cluster of Sparkfleet. It needs sh and kubectl and nothing else, writes no file, and can be
# run again at any time: what is done stays done.
#
#   --yes            do not ask (also SPARKFLEET_YES=1); needed where there is no terminal
#   --context NAME   context of kubectl; else the current one
#   --flux SOURCE    file or URL of the manifests of Flux, else what the cluster manager names (also SPARKFLEET_FLUX)
#   --limit SECONDS  longest wait for each step, 300 if not given (also SPARKFLEET_LIMIT)
#
# The lines above this text assign the values of the cluster: cluster_name, cluster_uuid, cluster_group (of Sparkplug), namespace, self_link and edge_deployment
# (names in Kubernetes), enrolment_job (the Job that enrols the cluster; empty: the credentials are in this script), flux_install (yes or no: may it be
# installed here), flux_source (from where; empty: its manifests are in this script), flux_needed (for people), and the manifests namespace_manifest,
# credentials_manifest, enrolment_manifests, flux_manifests and self_link_manifests.
set -u

context=
yes=${SPARKFLEET_YES:-}
flux_source=${SPARKFLEET_FLUX:-$flux_source}
flux_given=${SPARKFLEET_FLUX:-}
limit=${SPARKFLEET_LIMIT:-300}
# Seconds between two looks, and the longest that kubectl may wait for one answer.
pause=2
answer=20
step='start'
number=0
steps=7
said=
found=

say() {
	printf '%s\n' "$@"
}

# complain LINE...: to standard error.
complain() {
	printf '%s\n' "$@" >&2
}

# fail WHAT ADVICE: ends with what is wrong and what to do.
fail() {
	complain "" "FAILED in step $number of $steps ($step): $1"
	if [ -n "$said" ]; then
		complain "  kubectl says: $said"
	fi
	complain "  What to do: $2" "  Then run the same line again; what is done stays done."
	exit 1
}

interrupted() {
	trap - INT TERM HUP
	complain "" "Interrupted in step $number of $steps ($step). Nothing is broken: run the same line again to go on."
	exit 130
}

begin() {
	number=$((number + 1))
	step=$1
	said=
	say "[$number/$steps] $step"
}

# kubectl on the cluster that was shown at the start, whatever becomes the current context meanwhile.
kube() {
	if [ -n "$context" ]; then
		kubectl --context "$context" --request-timeout "${answer}s" "$@"
	else
		kubectl --request-timeout "${answer}s" "$@"
	fi
}

# try ARGUMENTS...: runs kubectl; what it prints is in $said if it fails.
try() {
	if said=$(kube "$@" 2>&1 </dev/null); then
		said=
		return 0
	fi
	return 1
}

# apply ARGUMENTS...: applies what comes on standard input, or what the arguments name.
apply() {
	if said=$(kube apply --server-side --force-conflicts --field-manager=sparkfleet-bootstrap "$@" 2>&1); then
		said=
		return 0
	fi
	return 1
}

# value PATH ARGUMENTS...: what is at that place of what kubectl gets, in $found; nothing there is no failure.
value() {
	path=$1
	shift
	found=
	if ! said=$(kube get "$@" --ignore-not-found -o "jsonpath=<<$path>>" 2>&1 </dev/null); then
		return 1
	fi
	case $said in
	*'<<'*'>>'*)
		found=${said#*'<<'}
		found=${found%'>>'*}
		;;
	esac
	said=
}

# Waits a little; sleep is not a part of the shell, and may be missing as everything else.
rest() {
	if command -v sleep >/dev/null 2>&1; then
		sleep "$pause"
	else
		kubectl ${context:+--context "$context"} --request-timeout "${pause}s" get namespaces --watch-only >/dev/null 2>&1 </dev/null
	fi
	waited=$((waited + pause))
}

# wait_until WHAT DIAGNOSIS LOOK...: looks until LOOK succeeds. At the limit it ends with what the function DIAGNOSIS prints.
wait_until() {
	what=$1
	diagnosis=$2
	shift 2
	waited=0
	until "$@"; do
		# An API that does not answer has used up the time of an answer.
		if [ -n "$said" ]; then
			waited=$((waited + answer))
		fi
		if [ "$waited" -ge "$limit" ]; then
			complain "" "waited for $limit seconds until $what; this is how it stands:"
			last=$said
			"$diagnosis" >&2
			said=$last
			fail "waited for $limit seconds until $what" "$advice"
		fi
		rest
	done
	said=
}

# Why pods do not run, as far as Kubernetes says it.
diagnose_pods() {
	states='{range .items[*]}{.metadata.name}: {.status.phase} {range .status.containerStatuses[*]}{.state.waiting.reason} {.state.waiting.message} {.state.terminated.reason} {.state.terminated.message}{end}{"\n"}{end}'
	if value "$states" pods -n "$1" -l "$2" && [ -n "$found" ]; then
		say "  pods: $found"
	else
		say "  pods: none in namespace $1 with $2"
	fi
}

conditions='{range .status.conditions[*]}{.type}={.status} {.reason} {.message}; {end}'

# diagnose KIND NAME NAMESPACE: the conditions of one object.
diagnose() {
	if ! value "$conditions" "$1" "$2" -n "$3"; then
		say "  $1 $2: $said"
	elif [ -n "$found" ]; then
		say "  $1 $2: $found"
	else
		say "  $1 $2: is not there, or says nothing of itself"
	fi
}

# ---- 1: what this cluster is, and what is missing

missing=
miss() {
	missing="$missing
  - $1"
}

# A step with something missing is not examined further.
stop_if_missing() {
	if [ -n "$missing" ]; then
		complain "" "FAILED in step $number of $steps ($step): this is missing:$missing" \
			"  Nothing was changed. Put it right, then run the same line again."
		exit 1
	fi
}

check_kubectl() {
	if ! command -v kubectl >/dev/null 2>&1; then
		miss "kubectl: install it (https://kubernetes.io/docs/tasks/tools/); with k3s: alias it to 'k3s kubectl'"
		stop_if_missing
	fi
	case $(kubectl apply --help 2>&1 </dev/null) in
	*--server-side*) ;;
	*) miss "kubectl that can apply on the server's side: install version 1.20 or newer" ;;
	esac
	if [ -z "$context" ]; then
		context=$(kubectl config current-context 2>/dev/null </dev/null) || context=
	fi
	server=$(kubectl config view --minify ${context:+--context "$context"} -o 'jsonpath={.clusters[0].cluster.server}' 2>/dev/null </dev/null) || server=
	if ! value '{.metadata.uid}' namespace kube-system; then
		miss "a Kubernetes API that answers (context ${context:-none}, server ${server:-unknown}): $said
    set KUBECONFIG, or choose with --context; kubectl config get-contexts lists what there is"
		stop_if_missing
	fi
	kubernetes_uid=$found
}

show_cluster() {
	say "" "Edge cluster  $cluster_name ($cluster_uuid), Sparkplug group $cluster_group"
	say "Kubernetes    context ${context:-none}, server ${server:-unknown}, cluster ${kubernetes_uid:-unknown}"
	if nodes=$(kube get nodes 2>/dev/null </dev/null); then
		say "$nodes"
	fi
	say ""
}

may() {
	verb=$1
	resource=$2
	shift 2
	if ! try auth can-i "$verb" "$resource" "$@" --quiet; then
		miss "the right to $verb $resource${2:+ in namespace $2}"
	fi
}

check_rights() {
	if try auth can-i '*' '*' --all-namespaces --quiet; then
		return
	fi
	if ! value '{.metadata.name}' namespace "$namespace" || [ -z "$found" ]; then
		may create namespaces
	fi
	may patch namespaces
	for resource in secrets serviceaccounts gitrepositories.source.toolkit.fluxcd.io kustomizations.kustomize.toolkit.fluxcd.io; do
		may create "$resource" --namespace "$namespace"
		may patch "$resource" --namespace "$namespace"
	done
	if [ -n "$enrolment_job" ]; then
		for resource in jobs.batch roles.rbac.authorization.k8s.io rolebindings.rbac.authorization.k8s.io; do
			may create "$resource" --namespace "$namespace"
			may patch "$resource" --namespace "$namespace"
		done
		may delete jobs.batch --namespace "$namespace"
	fi
	# Flux applies the repository as an account that may do everything; the account that binds it must be allowed to.
	may create clusterrolebindings.rbac.authorization.k8s.io
	may bind clusterroles.rbac.authorization.k8s.io
	if [ "$flux_state" = absent ]; then
		for resource in customresourcedefinitions.apiextensions.k8s.io clusterroles.rbac.authorization.k8s.io; do
			may create "$resource"
		done
		may create deployments.apps --namespace flux-system
	fi
}

# A namespace that belongs to another edge cluster is left alone: its credentials would be replaced.
check_namespace() {
	if value '{.metadata.annotations.sparkfleet\.io/cluster}' namespace "$namespace" && [ -n "$found" ] && [ "$found" != "$cluster_uuid" ]; then
		miss "another Kubernetes cluster: this one is edge cluster $found already (annotation sparkfleet.io/cluster of namespace $namespace)
    choose the right one with --context; or take the annotation away if that cluster is given up"
	fi
}

# Finds in $flux_state: absent, present or incompatible; in $flux_fault why; in $flux_namespace where it is.
look_for_flux() {
	flux_state=absent
	flux_fault=
	flux_namespace=
	controllers=
	if ! value '{range .items[*]}{.metadata.namespace}/{.metadata.name} {end}' deployments.apps --all-namespaces; then
		miss "the right to list Deployments, to see whether Flux is installed: $said"
		return
	fi
	for deployment in $found; do
		case $deployment in
		*/source-controller | */kustomize-controller | */helm-controller)
			controllers="$controllers ${deployment#*/}"
			flux_namespace=${deployment%%/*}
			;;
		esac
	done
	flux_version=
	if [ -n "$flux_namespace" ]; then
		value '{.metadata.labels.app\.kubernetes\.io/version}' deployments.apps source-controller -n "$flux_namespace" && flux_version=$found
	fi
	definitions=0
	for needed in gitrepositories.source.toolkit.fluxcd.io/v1 kustomizations.kustomize.toolkit.fluxcd.io/v1 helmreleases.helm.toolkit.fluxcd.io/v2; do
		definition=${needed%/*}
		if ! value '{range .spec.versions[?(@.served==true)]}{.name} {end}' customresourcedefinitions.apiextensions.k8s.io "$definition"; then
			miss "the right to read CustomResourceDefinitions, to see whether Flux is installed: $said"
			return
		fi
		case " $found" in
		' ') continue ;;
		*" ${needed#*/} "*) ;;
		*) flux_fault="$flux_fault $definition has ${found% }, needed is ${needed#*/};" ;;
		esac
		definitions=$((definitions + 1))
	done
	# Without it a release that failed once is never tried again.
	if [ "$definitions" -eq 3 ] && [ -z "$flux_fault" ]; then
		value '{.spec.versions[?(@.name=="v2")].schema.openAPIV3Schema.properties.spec.properties.install.properties.strategy.type}' \
			customresourcedefinitions.apiextensions.k8s.io helmreleases.helm.toolkit.fluxcd.io
		[ -n "$found" ] || flux_fault=" its HelmReleases have no install.strategy;"
	fi
	whole=no
	case $controllers in
	*source-controller*) case $controllers in *kustomize-controller*) case $controllers in *helm-controller*) whole=yes ;; esac ;; esac ;;
	esac
	if [ "$whole" = yes ] && [ "$definitions" -lt 3 ]; then
		flux_fault="$flux_fault its controllers run in namespace $flux_namespace, but not all of its definitions are there;"
	elif [ "$whole" = no ] && [ -n "$flux_namespace" ] && [ "$flux_namespace" != flux-system ]; then
		flux_fault="$flux_fault of its controllers only$controllers run in namespace $flux_namespace;"
	fi
	if [ -n "$flux_fault" ]; then
		flux_state=incompatible
	elif [ "$whole" = yes ]; then
		flux_state=present
	fi
}

check_flux() {
	look_for_flux
	case $flux_state in
	incompatible)
		miss "a Flux that fits. Found${flux_version:+ Flux $flux_version}:$flux_fault needed is $flux_needed
    update it (flux install, or your distribution's way), or remove it (flux uninstall) and let this script install one"
		;;
	absent)
		if [ "$flux_install" != yes ] && [ -z "$flux_given" ]; then
			miss "Flux: this edge cluster is created as bare, so its site brings Flux itself; install $flux_needed, or give --flux FILE-OR-URL"
		fi
		;;
	esac
}

check_needs() {
	begin 'look at the cluster'
	check_kubectl
	check_namespace
	check_flux
	check_rights
	show_cluster
	stop_if_missing
	said=
	case $flux_state in
	present) say "Flux${flux_version:+ $flux_version} is there (namespace $flux_namespace) and fits; it stays as it is." ;;
	absent) say "Flux is not there; it will be installed from ${flux_source:-this script}." ;;
	esac
}

has_terminal() {
	# shellcheck disable=SC2217 # the redirection is what is tried
	(true </dev/tty >/dev/tty) 2>/dev/null
}

ask() {
	if [ -n "$yes" ]; then
		return
	fi
	if ! has_terminal; then
		complain "" "There is no terminal to ask on. To bootstrap $cluster_name on this cluster, add --yes (curl ... | sh -s -- --yes) or set SPARKFLEET_YES=1." \
			"Nothing was changed."
		exit 2
	fi
	printf 'Make this Kubernetes cluster the edge cluster %s? [y/N] ' "$cluster_name" >/dev/tty
	read -r reply </dev/tty || reply=
	case $reply in
	y | Y | yes | Yes | YES) ;;
	*)
		complain "Nothing was changed."
		exit 1
		;;
	esac
}

# ---- 2: namespace and credentials

make_namespace() {
	begin "namespace $namespace"
	apply -f - <<END_OF_FILE || fail "the namespace cannot be made" "look at what kubectl says: rights, quotas, an admission webhook"
$namespace_manifest
END_OF_FILE
	value '{.status.phase}' namespace "$namespace" || fail "the namespace cannot be read" "see whether the Kubernetes API answers: kubectl get namespace $namespace"
	if [ "$found" = Terminating ]; then
		fail "namespace $namespace is being deleted" "wait until it is gone: kubectl get namespace $namespace"
	fi
}

store_credentials() {
	begin 'credentials'
	apply -f - <<END_OF_FILE || fail "the credentials cannot be stored in namespace $namespace" "look at what kubectl says: rights on Secrets, quotas, an admission webhook"
$credentials_manifest
END_OF_FILE
}

# ---- 3: enrolment

has_enrolled() {
	value '{range .status.conditions[?(@.status=="True")]}{.type}: {.message} {end}' jobs.batch "$enrolment_job" -n "$namespace" || return 1
	case $found in
	*Complete:*) return 0 ;;
	*Failed:*)
		diagnose_enrolment >&2
		fail "the enrolment failed" "read its log: kubectl logs -n $namespace job/$enrolment_job. A token that was used, has expired or was revoked needs another: sparkfleet cluster bootstrap $cluster_name"
		;;
	esac
	return 1
}

diagnose_enrolment() {
	diagnose jobs.batch "$enrolment_job" "$namespace"
	diagnose_pods "$namespace" "job-name=$enrolment_job"
	if log=$(kube logs "job/$enrolment_job" -n "$namespace" --tail=5 2>/dev/null </dev/null); then
		say "  log: $log"
	fi
}

enrol() {
	begin 'enrolment'
	if [ -z "$enrolment_job" ]; then
		say "  the cluster's credentials came with this script"
		return
	fi
	value '{range .status.conditions[?(@.status=="True")]}{.type} {end}' jobs.batch "$enrolment_job" -n "$namespace" ||
		fail "the enrolment's Job cannot be looked at" "see whether the Kubernetes API answers"
	case " $found" in
	*' Failed '*)
		# A Job that has failed does not start again.
		try delete jobs.batch "$enrolment_job" -n "$namespace" --ignore-not-found --timeout=60s ||
			fail "the Job of an earlier try cannot be removed" "remove it: kubectl delete job -n $namespace $enrolment_job"
		;;
	esac
	apply -f - <<END_OF_FILE || fail "the enrolment cannot be started" "look at what kubectl says: rights on Jobs and Roles, quotas, an admission webhook"
$enrolment_manifests
END_OF_FILE
	advice="if its image cannot be pulled, make it available to the cluster; if it cannot reach the broker, open the way; its log: kubectl logs -n $namespace job/$enrolment_job"
	wait_until 'the cluster is enrolled' diagnose_enrolment has_enrolled
}

# ---- 4: Flux

apply_flux() {
	if [ -n "$flux_source" ]; then
		apply -f "$flux_source" </dev/null
		return
	fi
	apply -f - <<END_OF_FILE
$flux_manifests
END_OF_FILE
}

# What names no account gets no rights, and nothing refers to another namespace; else an account that may write a release could do everything.
flux_locks='--default-service-account=default --no-cross-namespace-refs=true'

# Puts what is missing of $flux_locks into $unlocked, as controller/argument.
look_for_locks() {
	unlocked=
	for controller in kustomize-controller helm-controller; do
		value '{.spec.template.spec.containers[0].args}' deployments.apps "$controller" -n "$flux_namespace" || return 1
		for lock in $flux_locks; do
			case $found in *"${lock%=*}"*) ;; *) unlocked="$unlocked $controller/$lock" ;; esac
		done
	done
}

# Only of a Flux that this script has installed, be it in an earlier run: others may count on what they have.
lock_flux() {
	look_for_flux
	missing=
	look_for_locks || return 1
	value '{.metadata.managedFields[*].manager}' deployments.apps helm-controller -n "$flux_namespace" || return 1
	case $found in
	*sparkfleet-bootstrap*)
		for lock in $unlocked; do
			try patch deployments.apps "${lock%%/*}" -n "$flux_namespace" --type=json \
				-p '[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"'"${lock#*/}"'"}]' || return 1
		done
		;;
	*)
		if [ -n "$unlocked" ]; then
			say "  this Flux is not limited; what names no account may do everything. To limit it, add as arguments:"
			for lock in $unlocked; do
				say "    ${lock%%/*}: ${lock#*/}"
			done
		fi
		;;
	esac
}

flux_runs() {
	look_for_flux
	missing=
	[ "$flux_state" = present ] || return 1
	for controller in source-controller kustomize-controller helm-controller; do
		value '{.status.conditions[?(@.type=="Available")].status}' deployments.apps "$controller" -n "$flux_namespace" || return 1
		[ "$found" = True ] || return 1
	done
}

diagnose_flux() {
	[ -z "$flux_fault" ] || say "  $flux_fault"
	for controller in source-controller kustomize-controller helm-controller; do
		diagnose deployments.apps "$controller" "${flux_namespace:-flux-system}"
	done
	diagnose_pods "${flux_namespace:-flux-system}" 'app in (source-controller, kustomize-controller, helm-controller)'
}

install_flux() {
	begin 'Flux'
	if [ "$flux_state" = absent ]; then
		apply_flux ||
			fail "Flux cannot be installed from ${flux_source:-this script}" "look at what kubectl says; where the site has no way to that address, give a mirror or a file: --flux FILE-OR-URL"
	fi
	lock_flux ||
		fail "Flux cannot be given its limits ($flux_locks)" "see whether the Kubernetes API answers, and whether the rights include to patch Deployments in namespace ${flux_namespace:-flux-system}"
	advice="if its images cannot be pulled, make them available to the cluster; kubectl get pods -n ${flux_namespace:-flux-system} shows them"
	wait_until 'Flux runs' diagnose_flux flux_runs
}

# ---- 5: the cluster's repository

follows() {
	value '{.status.conditions[?(@.type=="Ready")].status}' kustomizations.kustomize.toolkit.fluxcd.io "$self_link" -n "$namespace" || return 1
	[ "$found" = True ]
}

diagnose_repository() {
	diagnose gitrepositories.source.toolkit.fluxcd.io "$self_link" "$namespace"
	diagnose kustomizations.kustomize.toolkit.fluxcd.io "$self_link" "$namespace"
}

follow_repository() {
	begin "the cluster's repository"
	apply -f - <<END_OF_FILE || fail "the address of the cluster's repository cannot be written for Flux" "look at what kubectl says; kubectl get pods -n ${flux_namespace:-flux-system} shows whether Flux runs"
$self_link_manifests
END_OF_FILE
	advice="if the repository cannot be cloned, see whether this cluster reaches the address that is named; if the login is refused, take another line: sparkfleet cluster bootstrap $cluster_name"
	wait_until 'Flux has applied the cluster'"'"'s repository' diagnose_repository follows
}

# ---- 6: edge sync and edge monitor

# What Flux installs them with: for each release with the cluster's UUID a word NAME/GENERATION/OBSERVED/READY/STALLED, in $found.
look_at_release() {
	value '{range .items[*]}{.metadata.name}/{.metadata.generation}/{.status.observedGeneration}/{.status.conditions[?(@.type=="Ready")].status}/{.status.conditions[?(@.type=="Stalled")].status} {end}' \
		helmreleases.helm.toolkit.fluxcd.io -n "$namespace" -l "factoryplus.app.amrc.co.uk/uuid=$cluster_uuid"
}

# A pod that runs is not a proof that its release does: Helm installs what it can before it fails.
release_is_ready() {
	look_at_release || return 1
	[ -n "$found" ] || return 1
	for release in $found; do
		state=${release#*/}
		generation=${state%%/*}
		case ${state#*/} in
		"$generation/True/"*) ;;
		"$generation/"*/True)
			diagnose_edge >&2
			fail "Flux has given the release ${release%%/*} up" "mend what is said above, then have Flux try again: at=\$(date +%s); kubectl annotate --overwrite -n $namespace helmreleases.helm.toolkit.fluxcd.io/${release%%/*} reconcile.fluxcd.io/requestedAt=\$at reconcile.fluxcd.io/resetAt=\$at"
			;;
		*) return 1 ;;
		esac
	done
}

# Says once what is missing, and has Flux fetch again at each look, so that the charts may be put there while this waits.
chart_advice=
look_for_chart() {
	look_at_release || return
	for release in $found; do
		chart_of=helmcharts.source.toolkit.fluxcd.io/$namespace-${release%%/*}
		value '{.status.conditions[?(@.type=="Ready")].reason}/{.spec.sourceRef.name}/{.spec.chart}' "$chart_of" -n "$namespace" || return
		case $found in
		InvalidChartReference/*) ;;
		*) continue ;;
		esac
		chart=${found#*/*/}
		chart_source=${found#*/}
		chart_source=${chart_source%%/*}
		value '{.spec.url}' gitrepositories.source.toolkit.fluxcd.io "$chart_source" -n "$namespace" || return
		if [ -z "$chart_advice" ]; then
			chart_advice="$found has no chart $chart, so Flux cannot install edge sync: put Sparkfleet's charts there (directory helm of its source, /usr/share/sparkfleet/charts of its image).
  Either set git.charts_dir of the cluster manager to that directory, or push it with an operator's token as the password:
    git clone $found charts && cp -r helm/. charts && cd charts && git add . && git commit -m charts && git push"
			say "  $chart_advice"
			advice="put the charts where they are missing, as said above"
		fi
		try annotate --overwrite gitrepositories.source.toolkit.fluxcd.io "$chart_source" -n "$namespace" "reconcile.fluxcd.io/requestedAt=$$-$waited"
	done
}

are_born() {
	look_for_chart
	value '{.metadata.generation} {.status.observedGeneration} {.status.availableReplicas}' deployments.apps "$edge_deployment" -n "$namespace" || return 1
	# shellcheck disable=SC2086 # three words
	set -- $found
	[ $# -eq 3 ] && [ "$1" -le "$2" ] && [ "$3" -ge 1 ]
}

diagnose_edge() {
	diagnose_repository
	for kind in gitrepositories.source.toolkit.fluxcd.io helmcharts.source.toolkit.fluxcd.io helmreleases.helm.toolkit.fluxcd.io; do
		if value '{range .items[*]}{.metadata.name}: {range .status.conditions[*]}{.type}={.status} {.reason} {.message}; {end}{"\n"}{end}' "$kind" -n "$namespace"; then
			say "  ${kind%%.*}: ${found:-none}"
		fi
	done
	diagnose deployments.apps "$edge_deployment" "$namespace"
	diagnose_pods "$namespace" "app.kubernetes.io/name=$edge_deployment"
}

wait_for_births() {
	begin 'edge sync and edge monitor'
	advice="a pod that runs and is not ready has not reached the broker, or was refused there: kubectl logs -n $namespace deployment/$edge_deployment"
	wait_until 'edge sync and edge monitor are born' diagnose_edge are_born
	advice="mend what Flux says of the release above (kubectl describe helmreleases.helm.toolkit.fluxcd.io -n $namespace); it comes from the chart and the values of the EdgeCluster entry: sparkfleet config get $cluster_name EdgeCluster"
	wait_until 'Flux says that their release is ready' diagnose_edge release_is_ready
}

usage() {
	complain "$1" "usage: sh bootstrap.sh [--yes] [--context NAME] [--flux FILE-OR-URL] [--limit SECONDS]"
	exit 2
}

read_arguments() {
	while [ $# -gt 0 ]; do
		case $1 in
		--yes) yes=1 ;;
		--context | --flux | --limit)
			[ $# -ge 2 ] || usage "$1 needs a value"
			case $1 in
			--context) context=$2 ;;
			--flux) flux_source=$2 flux_given=$2 ;;
			--limit) limit=$2 ;;
			esac
			shift
			;;
		*) usage "unknown argument $1" ;;
		esac
		shift
	done
	case $limit in
	'' | *[!0-9]*) usage "--limit must be a number of seconds, not '$limit'" ;;
	esac
}

main() {
	trap interrupted INT TERM HUP
	read_arguments "$@"
	check_needs
	ask
	make_namespace
	store_credentials
	enrol
	install_flux
	follow_repository
	wait_for_births
	say "" "Edge cluster $cluster_name is alive: edge sync and edge monitor are born in group $cluster_group, and Flux says that their release is ready."
	# The shell reads nothing more, whatever comes behind the script.
	exit 0
}

# The last line: a script that was cut off on its way does nothing.
main "$@"
