#compdef insula
_insula() {
    local -a found
    found=(${(f)"$("${words[1]}" __complete plain "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( ${#found} )); then
        compadd -- "${found[@]}"
    else
        _files
    fi
}
compdef _insula insula
