#!/bin/sh
# Judges a push before any ref moves; the user who pushes reads what it writes. What is pushed is not part of the repository yet.
# SPARKFLEET_PUSH: by-hand (a cluster's repository) or shared. SPARKFLEET_PULLED: branches that are pulled from elsewhere, one a line.
# SPARKFLEET_MARK: file to make, which shows that git has run this.
set -eu

[ "${1-}" = test ] && exit 0
: >"$SPARKFLEET_MARK"

refuse() {
	echo "Refused: $*" >&2
	exit 1
}

by_hand() {
	[ "$ref" = refs/heads/main ] || refuse "$ref: only branch main can be pushed to a cluster's repository."
	case $old$new in
	*"$zero"*) refuse "branch main can be neither made nor deleted." ;;
	esac
	git merge-base --is-ancestor "$old" "$new" ||
		refuse "branch main is only added to. Fetch it, put your commits on top, and push again."
	code=0
	git diff-tree -r --quiet "$old" "$new" -- . ':(exclude,glob)by-hand/**' || code=$?
	[ "$code" -eq 0 ] && return
	[ "$code" -eq 1 ] || refuse "the commits cannot be compared."
	echo "Refused: in a cluster's repository only what is below by-hand/ is yours. This push changes as well:" >&2
	git diff-tree -r --name-only "$old" "$new" -- . ':(exclude,glob)by-hand/**' | head -n 5 >&2
	exit 1
}

shared() {
	case $ref in
	refs/heads/* | refs/tags/*) ;;
	*) refuse "$ref: only branches and tags can be pushed." ;;
	esac
	if printf '%s\n' "$SPARKFLEET_PULLED" | grep -qxF -e "${ref#refs/heads/}"; then
		refuse "branch ${ref#refs/heads/} is pulled from another server; push there."
	fi
	if [ "$ref $new" = "refs/heads/main $zero" ]; then
		refuse "branch main cannot be deleted: clusters follow it."
	fi
}

zero=0000000000000000000000000000000000000000
while read -r old new ref; do
	case $SPARKFLEET_PUSH in
	by-hand) by_hand ;;
	shared) shared ;;
	*) refuse "it is not set what may be pushed." ;;
	esac
done
