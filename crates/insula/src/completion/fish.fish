complete -c insula -k -a '(insula __complete fish (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
