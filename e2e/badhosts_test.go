//go:build long

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// badHost describes a host with one fault, and the expected outcome of a
// launch on this host.
type badHost struct {
	name  string
	sshd  string                // options of an extra SSH server on port 2200; "" uses the host's own server
	bare  bool                  // true if the extra SSH server has no sftp subsystem
	spoil func(*testhosts.Host) // may be nil
	limit string                // --start-timeout; "": 20s
	code  int
	says  []string // words that one line of stderr must contain together, unless the launch succeeds
}

func (c badHost) config() string {
	if c.bare {
		return "/tmp/bare"
	}
	return "/etc/ssh/sshd_config"
}

// TestBadHosts launches on several hosts at once, each with a different fault.
// Within 30 s, each launch either works or names the bad host and the cause in
// one line.
func TestBadHosts(t *testing.T) {
	t.Parallel()
	shell := func(line string) func(*testhosts.Host) {
		return func(h *testhosts.Host) { inside(t, h, line) }
	}
	date := `printf '#!/bin/sh\nexec /bin/date --date="+1 day" "$@"\n' >/usr/local/bin/date; chmod 755 /usr/local/bin/date`
	// The host's limit on the number of processes does not apply to root, so
	// this test uses another user.
	limited := `chown 64123 $HOME; chmod 755 $HOME; cat >$HOME/.bashrc <<'EOF'
[ $EUID = 0 ] || return
exec setpriv --reuid=64123 --regid=64123 --clear-groups bash -c "ulimit -u 5; $BASH_EXECUTION_STRING"
EOF
`
	cases := []badHost{
		{name: "filtered", spoil: shell("ip link set eth0 down"), code: 125, says: []string{"no route to host"}},
		{name: "silent", spoil: func(h *testhosts.Host) { h.Freeze() }, limit: "6s", code: 125, says: []string{"no connection within 6s"}},
		{name: "other host key", spoil: func(h *testhosts.Host) { h.WrongHostKey() }, code: 125, says: []string{"host key refused", "another key is recorded"}},
		{name: "full disk", spoil: shell("mount -t tmpfs -o size=1m tmpfs $HOME; head -c 2000000 /dev/zero >$HOME/full || true"), code: 125, says: []string{"full"}},
		{name: "refused key", spoil: shell(": >/etc/ssh/authorized_keys"), code: 125, says: []string{"id_ed25519"}},
		{name: "noexec home", spoil: shell("mount -t tmpfs -o noexec tmpfs $HOME"), code: 125, says: []string{"noexec"}},
		{name: "no home", spoil: shell("mount -t tmpfs -o mode=755 tmpfs /run/lock 2>/dev/null; umount -l $HOME; mount -t tmpfs -o ro,size=4k tmpfs $HOME"), code: 125, says: []string{"ead-only"}},
		{name: "other architecture", spoil: shell(`printf '#!/bin/sh\n/bin/uname "$@" | sed "s/\\<$(/bin/uname -m)\\>/riscv64/"\n' >/usr/local/bin/uname; chmod 755 /usr/local/bin/uname`), code: 125, says: []string{"riscv64"}},
		{name: "one session", sshd: "-o MaxSessions=1"},
		{name: "few startups", sshd: "-o MaxStartups=3:50:10"},
		{name: "no sftp", sshd: "-o LogLevel=INFO", bare: true},
		{name: "no forwarding", sshd: "-o DisableForwarding=yes"},
		{name: "forced command", sshd: "-o ForceCommand='sleep 1000'", code: 125, says: []string{"ForceCommand"}},
		{name: "megabytes", spoil: shell(`echo 'yes | head -c 5000000' >$HOME/.bashrc`), code: 125, says: []string{"1 MiB"}},
		{name: "limited memory", spoil: shell(`echo 'ulimit -v 500000' >$HOME/.bashrc`), code: 125, says: []string{"plx cannot start there", "the address space to 488 MiB (ulimit -v)"}},
		{name: "limited files", spoil: shell(`echo 'ulimit -n 20' >$HOME/.bashrc`), code: 125, says: []string{"plx cannot start there", "the number of open files to 20 (ulimit -n)"}},
		{name: "limited processes", spoil: shell(limited), code: 125, says: []string{"plx cannot start there", "the number of processes to 5 (ulimit -u)"}},
		{name: "clock a day off", spoil: shell(date)},
	}
	b := newBench(t, testhosts.Options{Hosts: len(cases)})
	hello := b.script("hello", "echo up")
	config := filepath.Join(b.Home, ".ssh", "config")
	var more strings.Builder
	for i, c := range cases {
		h := b.Hosts[i]
		if c.sshd != "" {
			inside(t, h, "grep -v sftp /etc/ssh/sshd_config >/tmp/bare; /usr/sbin/sshd -f "+c.config()+" -p 2200 "+c.sshd)
			fmt.Fprintf(&more, "Host %s\n\tPort 2200\n\tHostKeyAlias %s\n", h.Name, h.Addr)
		}
		if c.spoil != nil {
			c.spoil(h)
		}
	}
	if err := os.WriteFile(config, []byte(more.String()+mustRead(t, config)), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		h := b.Hosts[i]
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			start := time.Now()
			res := b.want(c.code, "launch", "--hosts", b.file(t, h.Name), "--start-timeout", cmp.Or(c.limit, "20s"), hello)
			t.Logf("%.1f s\n%s", time.Since(start).Seconds(), res.stderr)
			b.took("a launch on a bad host", start, 30*time.Second)
			if c.code == 0 {
				if want := "worker:0 " + h.Name + " | up\n"; res.stdout != want {
					t.Errorf("stdout %q, want %q", res.stdout, want)
				}
				return
			}
			if took := time.Since(start); took > 10*time.Second && !strings.Contains(res.stderr, "waiting for "+h.Name) && !strings.Contains(res.stderr, "plx: sending: ") {
				t.Errorf("nothing was said for %v:\n%s", took, res.stderr)
			}
			b.says(res, append([]string{"host " + h.Name + ": "}, c.says...)...)
		})
	}
}

// file writes a resource file that consists of one line, and returns its path.
func (b *bench) file(t *testing.T, line string) string {
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
