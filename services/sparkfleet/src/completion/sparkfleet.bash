#!/bin/bash
# Completion of sparkfleet in bash. Read it with: source <(sparkfleet completions bash)
_sparkfleet() {
    local program=$1 word candidate quoted before i
    local -a words=()
    type -P "$program" > /dev/null || program=sparkfleet
    # bash takes --option=value and http://host apart.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 1)) && [[ $word =~ ^[=:]+$ || ${COMP_WORDS[i - 1]} =~ ^[=:]+$ ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
    done
    # It replaces only what comes after these characters.
    before=
    if [[ $word != "${words[${#words[@]} - 1]}" ]]; then
        word=${words[${#words[@]} - 1]}
        before=${word%"${word##*[=:]}"}
    fi
    COMPREPLY=()
    while IFS= read -r candidate; do
        candidate=${candidate#"$before"}
        [[ -n $candidate ]] || continue
        # What is inserted is read by bash again, so that it must not mean anything to it.
        printf -v quoted %q "$candidate"
        # Between quotes that are open, quoting would be a part of the word.
        [[ $word == [\'\"]* && $quoted != "$candidate" ]] || COMPREPLY+=("$quoted")
    done <<< "$("$program" complete bash -- "${words[@]}" 2> /dev/null < /dev/null)"
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace 2> /dev/null
    fi
}
if [[ ${BASH_VERSINFO[0]} -eq 4 && ${BASH_VERSINFO[1]} -ge 4 || ${BASH_VERSINFO[0]} -gt 4 ]]; then
    complete -o nosort -F _sparkfleet sparkfleet
else
    complete -F _sparkfleet sparkfleet
fi
