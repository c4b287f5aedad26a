. /root/common.sh
echo second >/root/which

say "the package is installed: its service runs, now and with the machine, and its group is there"
check install dpkg -i /root/netnice.deb
check runs systemctl -q is-active netnice.service
check with_the_machine systemctl -q is-enabled netnice.service
check group getent group netnice
check release is "netnice version | cut -d' ' -f2 | tr -d ," "$(dpkg-query -W -f '${Version}' netnice | sed 's/-[^-]*$//')"
check manual sh -c 'test -s /usr/share/man/man1/nlimit.1.gz && netnice rules check /usr/share/doc/netnice/examples/netnice.toml'

say "its socket starts the daemon, where the service is not wanted"
systemctl disable --now netnice.service
check enabled systemctl enable --now netnice.socket
check inactive is 'systemctl is-active netnice.service' inactive
check call within 60 netnice ls
check activated systemctl -q is-active netnice.service
systemctl enable netnice.service

say "netnice up has systemd start the service, which logs to the journal with priorities"
systemctl stop netnice.service netnice.socket
check up sh -c 'netnice up | grep -q "as netnice.service"'
check up_is_service systemctl -q is-active netnice.service
check up_again sh -c 'netnice up --replace | grep -q "as netnice.service"'
check no_log is 'ls /var/log/netnice* 2>/dev/null' ''
mkdir -p /etc/netnice
echo nonsense >/etc/netnice/netnice.toml
netnice rules reload
check warned within 10 sh -c 'journalctl --no-pager -u netnice.service -p warning -o cat | grep -q "rules are not in force"'
check not_all_warnings sh -c 'journalctl --no-pager -u netnice.service -p info..info -o cat | grep -q .'
rm -r /etc/netnice
netnice rules reload
systemctl stop netnice.service
check up_detached sh -c 'netnice up --detach | grep -q "log /var/log/netnice-daemon.log"'
netnice down
systemctl start netnice.socket netnice.service

say "limits, and a flow of a user's that goes on through all that follows"
check user netnice set --user bob --up 500kB/s --loopback
check unit netnice set --unit cron.service --up 300kB/s
check process netnice set --pid $$ --up 9MB/s
python3 /root/flow.py bob 90 >/root/flow.out &
flow=$!
sleep 6

say "the daemon is killed"
pid=$(systemctl show -p MainPID --value netnice)
kill -9 "$pid"
check restarted within 120 systemctl -q is-active netnice.service
check other is "systemctl show -p NRestarts --value netnice" 1

say "it is stopped, which leaves the limits, and started"
systemctl stop netnice.service
sleep 3
check started systemctl start netnice.service

say "an upgrade over a running daemon"
check upgrade dpkg -i /root/netnice.deb
check upgraded systemctl -q is-active netnice.service

say "and over one of another release, with other maps"
rm /sys/fs/bpf/netnice/unknown
check layout bpftool map create /sys/fs/bpf/netnice/unknown type array key 4 value 24 entries 1 name other
check anew dpkg -i /root/netnice.deb
check active systemctl -q is-active netnice.service
check kept is "netnice ls | tail -n +2 | wc -l" 3
check nothing_aside is 'ls /sys/fs/bpf' netnice
wait $flow
check flow_held python3 /root/judge.py /root/flow.out 500000

say "a login, and a job of cron's, of the same user"
mkdir -p /root/.ssh /home/bob/.ssh
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
cp /root/.ssh/id_ed25519.pub /home/bob/.ssh/authorized_keys
chown -R bob: /home/bob
check login sh -c 'ssh -o StrictHostKeyChecking=no bob@127.0.0.1 python3 /home/bob/flow.py - 8 >/root/login.out'
check login_held python3 /root/judge.py /root/login.out 500000
echo '* * * * * bob python3 /home/bob/flow.py - 8 >/tmp/cron.new && mv -n /tmp/cron.new /tmp/cron.out' >/etc/cron.d/job
check cron within 150 test -s /tmp/cron.out
rm /etc/cron.d/job
check cron_held python3 /root/judge.py /tmp/cron.out 500000

say "a user's own rules are read"
mkdir -p /home/bob/.config/netnice
printf '[[rule]]\nname = "bulk"\nprogram = "rsync"\nup = "100kB/s"\n' >/home/bob/.config/netnice/netnice.toml
chown -R bob: /home/bob/.config
check rules within 10 sh -c 'netnice rules list | grep -q bulk'

say "shares of the processors, in scopes beside the units"
share() { # share PID LEAST MOST: in per cent of a processor, over 5 s
	local at=$(awk '{ print $14 + $15 }' "/proc/$1/stat") used
	sleep 5
	used=$(($(awk '{ print $14 + $15 }' "/proc/$1/stat") - at))
	[ $((used / 5)) -ge "$2" ] && [ $((used / 5)) -le "$3" ] || { echo "$used of 500"; return 1; }
}
systemd-run -q --unit spin sh -c 'while :; do :; done'
pid=$(systemctl show -p MainPID --value spin)
was=$(cat "/proc/$pid/cgroup")
check power netnice power "$pid" 30
check in_a_scope grep -q '/system.slice/netnice-cpu-.*\.scope$' "/proc/$pid/cgroup"
check power_holds share "$pid" 27 33
check still_active systemctl -q is-active spin
check power_changed netnice power "$pid" 10
check power_holds_changed share "$pid" 8 12
kill -9 "$(systemctl show -p MainPID --value netnice)"
check power_holds_alone share "$pid" 8 12
check power_taken_up within 120 sh -c "netnice power | grep -q '10%'"
check power_lifted netnice power "$pid" 0
check back is "cat /proc/$pid/cgroup" "$was"
check scope_gone within 20 sh -c '! systemctl list-units --all | grep netnice-cpu'
check power_slots netnice power "$pid" 40 --slots 10ms
check slots_on_time within 10 sh -c 'chrt -a -p "$(systemctl show -p MainPID --value netnice)" | grep -q SCHED_FIFO'
check power_strict sh -c "netnice power $pid 20 --strict && chrt -p $pid | grep -q SCHED_DEADLINE"
check power_again netnice power "$pid" 20
check power_of_stopped systemctl stop spin
check ended within 10 sh -c "! kill -0 $pid"
check scope_ended within 20 sh -c '! systemctl list-units --all | grep netnice-cpu'
# a user in the user's own slice, and in somebody else's, whose limits would be left behind
check users_own systemd-run -q --wait --slice "user-$(id -u bob).slice" -p User=bob netnice exec 50 true
check users_refused sh -c 'systemd-run -q --wait --pipe -p User=bob netnice exec 50 true 2>&1 | grep -q "would leave"'

say "a path is probed by raw sockets, where nobody may have ping sockets"
printf '1\t0' >/proc/sys/net/ipv4/ping_group_range
ip netns add far
ip link add near type veth peer name far netns far
ip addr add 10.77.0.1/24 dev near
ip link set near up
ip -n far addr add 10.77.0.2/24 dev far
ip -n far link set far up
check adapt within 10 sh -c 'netnice adapt 10.77.0.2 --start 1mbit | grep -q icmp-timestamp'
check no_pings is 'cat /proc/sys/net/ipv4/ping_group_range | tr "\t" " "' '1 0'
check doctor sh -c 'netnice doctor | grep -q "all capabilities that it needs"'
check adapt_off netnice adapt 10.77.0.2 off
ip netns del far

say "what the service may do"
check exposure systemd-analyze security --no-pager --threshold=55 netnice.service
check filtered is "awk '/^Seccomp:/ { print \$2 }' /proc/$(systemctl show -p MainPID --value netnice)/status" 2
check nothing_denied sh -c '! journalctl --no-pager -u netnice.service -o cat | grep -i "operation not permitted"'

journalctl --no-pager -u netnice.service -o cat | tail -60
say "reboot"
systemctl reboot
