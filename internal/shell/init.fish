# netnice shell-init fish: a command whose last word is @RATE runs under that limit.
# In ~/.config/fish/config.fish: netnice shell-init fish | source
function netnice_at
    set -l rate $argv[1]
    set -e argv[1]
    if test (type -t -- $argv[1] 2>/dev/null) = file
        command netnice run --total $rate -- $argv
    else
        # fish runs functions itself: another one does under the limit
        command netnice run --total $rate -- fish -c (string join ' ' -- (string escape -- $argv))
    end
end
function _netnice_line
    set -l line (commandline | string collect)
    if string match -q '*@*' -- $line
        set -l new (command netnice shell-line fish $line 2>&1)
        switch $status
            case 0
                commandline -r -- (string join \n -- $new)
            case 125 # the line stays to be mended
                printf '\n%s' $new
                commandline -f repaint
                return
        end
    end
    commandline -f execute
end
if status is-interactive
    for _netnice_mode in default insert
        bind -M $_netnice_mode \r _netnice_line
        bind -M $_netnice_mode \n _netnice_line
    end
    set -e _netnice_mode
end
