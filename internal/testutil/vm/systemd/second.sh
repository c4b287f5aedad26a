. /root/common.sh
rm /root/which
say "after the reboot"
monotonic() { systemctl show -p ActiveEnterTimestampMonotonic --value "$1"; }
say "netnice $(monotonic netnice.service) us, network-pre.target $(monotonic network-pre.target) us, ssh $(monotonic ssh.service) us"
check before_network test "$(monotonic netnice.service)" -lt "$(monotonic network-pre.target)"
check kept is "netnice ls | awk 'NR > 1 { print \$1 }' | sort | paste -sd' '" "unit:cron.service user:bob"
python3 /root/flow.py bob 8 >/root/flow.out
check flow_held python3 /root/judge.py /root/flow.out 500000

say "down"
check down netnice down
sleep 2
check stays_down is 'systemctl is-active netnice.service' inactive
check nothing_pinned is 'ls /sys/fs/bpf' ''
check up_again netnice set --user bob --up 500kB/s
check activated systemctl -q is-active netnice.service

say "the package is removed"
check remove dpkg -r netnice
check no_pins is 'ls /sys/fs/bpf' ''
check no_units is 'systemctl list-unit-files --no-legend "netnice*"' ''
check no_devices is 'ip -br link | cut -d" " -f1' lo
check no_files is 'ls -d /run/netnice /var/lib/netnice /usr/bin/netnice /usr/bin/nlimit 2>/dev/null' ''
python3 /root/flow.py bob 4 >/root/flow.out
check free python3 /root/judge.py /root/flow.out free
journalctl --no-pager -b -u netnice.service -o cat | tail -30
check purge dpkg -P netnice
check no_log is 'ls -d /var/log/netnice* /var/lib/netnice 2>/dev/null' ''
say "end"
systemctl poweroff
