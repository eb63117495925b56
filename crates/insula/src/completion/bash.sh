_insula() {
    local line="${COMP_LINE:0:COMP_POINT}" current prefix IFS=$' \t\n'
    local -a words
    read -ra words <<<"$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    current="${words[${#words[@]}-1]}"
    # bash takes `:` for the end of a word, and replaces only what follows it.
    prefix="${current%"${current##*[:=]}"}"
    IFS=$'\n'
    COMPREPLY=($("${words[0]}" __complete plain "${words[@]:1}" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}
complete -o default -F _insula insula
