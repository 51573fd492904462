# Completion of sparkfleet in fish. Read it with: sparkfleet completions fish | source
function __sparkfleet_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l program $words[1]
    command --query $program; or set program sparkfleet
    # fish quotes what it inserts.
    command $program complete fish -- $words (commandline --current-token --cut-at-cursor) 2>/dev/null </dev/null
end
complete --command sparkfleet --keep-order --no-files --arguments '(__sparkfleet_complete)'
