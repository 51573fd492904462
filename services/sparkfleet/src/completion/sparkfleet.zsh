#compdef sparkfleet
# Completion of sparkfleet in zsh. Read it with: source <(sparkfleet completions zsh)
_sparkfleet() {
    local program=${(Q)words[1]} line value
    local -a names name_lines folders folder_lines
    (( $+commands[$program] )) || [[ -x $program ]] || program=sparkfleet
    for line in "${(@f)$("$program" complete zsh -- "${(@)words[1,CURRENT]}" 2> /dev/null < /dev/null)}"; do
        value=${line%%$'\t'*}
        [[ -n $value ]] || continue
        line=${line/$'\t'/  -- }
        if [[ $value == */ ]]; then
            folders+=("$value") folder_lines+=("$line")
        else
            names+=("$value") name_lines+=("$line")
        fi
    done
    (( $#names + $#folders )) || return 1
    # compadd quotes what it inserts.
    (( $#names )) && compadd -l -V names -d name_lines -a names
    (( $#folders )) && compadd -l -V folders -S '' -d folder_lines -a folders
    return 0
}
if [[ $funcstack[1] == _sparkfleet ]]; then
    _sparkfleet "$@"
else
    compdef _sparkfleet sparkfleet
fi
