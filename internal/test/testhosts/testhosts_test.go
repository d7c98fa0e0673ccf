package testhosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	t.Cleanup(cancel)
	return ctx
}

// runSSH runs a shell command on a host and returns both output streams.
func runSSH(t *testing.T, c *Cluster, h *Host, command string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := c.SSH(bounded(t), h, command)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err = cmd.Run()
	return out.String(), complaint.String(), err
}

func mustSSH(t *testing.T, c *Cluster, h *Host, command string) string {
	t.Helper()
	out, complaint, err := runSSH(t, c, h, command)
	if err != nil {
		t.Fatalf("ssh %s %q: %v: %s", h.Name, command, err, complaint)
	}
	return strings.TrimSpace(out)
}

// reachable reports whether sshd sends its greeting within a second.
func reachable(h *Host) bool {
	address := net.JoinHostPort(h.Addr, fmt.Sprint(sshPort))
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	greeting := make([]byte, 4)
	_, err = conn.Read(greeting)
	return err == nil && string(greeting) == "SSH-"
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience.Limit); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience.Limit, what)
		}
	}
}

func TestHostsAreSeparateMachines(t *testing.T) {
	c := Start(t, Options{Hosts: 3})
	seen := map[string]string{}
	for _, h := range c.Hosts {
		facts := mustSSH(t, c, h, `echo $HOME; hostname; cat /proc/sys/kernel/random/boot_id /etc/machine-id
			echo $SSH_CONNECTION; ls -A ~ /tmp /var/lib/plx-testhosts; cat /proc/1/comm; getent hosts `+h.Name)
		if other, found := seen[facts]; found {
			t.Errorf("%s and %s give the same facts: %s", h.Name, other, facts)
		}
		seen[facts] = h.Name
		for _, want := range []string{h.Name + "\n", " " + h.Addr + " 22\n", "sshd\n", h.Addr + " "} {
			if !strings.Contains(facts, want) {
				t.Errorf("%s: %q is not in %s", h.Name, want, facts)
			}
		}
		if strings.Contains(facts, "net-") {
			t.Errorf("%s sees the folders of the clusters: %s", h.Name, facts)
		}
		mustSSH(t, c, h, "echo from-$(hostname) >~/file; echo x >/tmp/x")
		text, err := os.ReadFile(filepath.Join(h.HomeDir, "file"))
		if err != nil || string(text) != "from-"+h.Name+"\n" {
			t.Errorf("%s: home seen from outside: %q, %v", h.Name, text, err)
		}
		if n, err := h.Logins(); n != 2 || err != nil {
			t.Errorf("%s: %d logins, %v, after two commands", h.Name, n, err)
		}
	}
}

func TestCutAndHeal(t *testing.T) {
	c := Start(t, Options{Hosts: 2})
	h := c.Hosts[0]
	h.Cut()
	if reachable(h) {
		t.Error("a host without a link answers")
	}
	eventually(t, "the other host answers", func() bool { return reachable(c.Hosts[1]) })
	h.Heal()
	eventually(t, "the healed host answers", func() bool { return reachable(h) })
	mustSSH(t, c, h, "true")
}

func TestPowerOffKillsAllProcessesAndSendsNothing(t *testing.T) {
	c := Start(t, Options{Hosts: 1})
	h := c.Hosts[0]
	first := mustSSH(t, c, h, "setsid sleep 1000 >/dev/null 2>&1 </dev/null & cat /proc/sys/kernel/random/boot_id; echo kept >~/kept")
	before, err := h.Processes()
	if err != nil || len(before) < 2 {
		t.Fatalf("processes %v, %v", before, err)
	}
	conn, err := net.Dial("tcp", h.Addr+":22")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	h.PowerOff()
	_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection to a host without power: %v, want silence", err)
	}
	for _, p := range before {
		if start, err := startTime(outside(p.OuterPID)); err == nil && start == p.start {
			t.Errorf("%v survived", p)
		}
	}
	if after, err := h.Processes(); err != nil || len(after) != 0 {
		t.Errorf("processes without power: %v, %v", after, err)
	}
	if reachable(h) {
		t.Error("a host without power answers")
	}
	h.PowerOn()
	if got := mustSSH(t, c, h, "cat ~/kept /proc/sys/kernel/random/boot_id"); !strings.HasPrefix(got, "kept\n") || strings.HasSuffix(got, first) {
		t.Errorf("after power on: %q; boot id was %q", got, first)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	c := Start(t, Options{Hosts: 1})
	h := c.Hosts[0]
	counter := filepath.Join(h.HomeDir, "counter")
	mustSSH(t, c, h, "setsid sh -c 'while :; do echo >>~/counter; sleep 0.01; done' >/dev/null 2>&1 </dev/null &")
	mustSSH(t, c, h, "for i in 1 2; do setsid sh -c 'while :; do /bin/true; done' >/dev/null 2>&1 </dev/null & done")
	size := func() int64 {
		info, err := os.Stat(counter)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	eventually(t, "the counter counts", func() bool { return size() > 3 })
	h.Freeze()
	frozen := size()
	if reachable(h) {
		t.Error("a frozen host greets")
	}
	if size() != frozen {
		t.Error("a frozen host works")
	}
	h.Thaw()
	eventually(t, "the counter counts again", func() bool { return size() > frozen })
	mustSSH(t, c, h, "true")
}

func TestProcessTable(t *testing.T) {
	c := Start(t, Options{Hosts: 2})
	h := c.Hosts[0]
	if strays, err := h.Strays(); err != nil || len(strays) != 0 {
		t.Fatalf("strays of an idle host: %v, %v", strays, err)
	}
	mustSSH(t, c, h, "MARK=here setsid setsid sleep 1001 >/dev/null 2>&1 </dev/null & echo")
	var p Process
	eventually(t, "the sleep is the only stray", func() bool {
		strays, err := h.Strays()
		if err != nil || len(strays) != 1 || len(strays[0].Args) == 0 { // the process has not called exec yet
			return false
		}
		p = strays[0]
		return p.Name == "sleep"
	})
	if fmt.Sprint(p.Args) != "[sleep 1001]" || p.PID == p.OuterPID || p.PID == 1 || p.PPID != 1 {
		t.Errorf("process %v, outer id %d", p, p.OuterPID)
	}
	if !strings.Contains(strings.Join(p.Environ, "\n"), "MARK=here") {
		t.Errorf("environ %q", p.Environ)
	}
	short, cancel := context.WithTimeout(bounded(t), 50*time.Millisecond)
	defer cancel()
	if err := h.AwaitIdle(short); err == nil || !strings.Contains(err.Error(), "sleep") {
		t.Errorf("idle with a sleep: %v", err)
	}
	if err := p.Signal(9); err != nil {
		t.Fatal(err)
	}
	if err := h.AwaitIdle(bounded(t)); err != nil {
		t.Error(err)
	}
	if err := p.Signal(9); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal to a process that is gone: %v", err)
	}
	if strays, err := c.Hosts[1].Strays(); err != nil || len(strays) != 0 {
		t.Errorf("strays of the other host: %v, %v", strays, err)
	}
}

func TestCommandRunsInside(t *testing.T) {
	c := Start(t, Options{Hosts: 1})
	h := c.Hosts[0]
	out, err := h.Command(bounded(t), "sh", "-c", "hostname; pwd; echo $HOME; env | wc -l; readlink /proc/self/ns/net").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(out), "h1\n"+c.root+"\n"+c.root+"\n") || strings.Contains(string(out), own) {
		t.Errorf("inside: %s", out)
	}
	var status *exec.ExitError
	if err := h.Command(bounded(t), "sh", "-c", "exit 7").Run(); !errors.As(err, &status) || status.ExitCode() != 7 {
		t.Errorf("exit 7 gives %v", err)
	}
	ctx, cancel := context.WithCancel(bounded(t))
	sleep := h.Command(ctx, "sleep", "1002")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "sleep runs", func() bool {
		strays, err := h.Strays()
		return err == nil && len(strays) == 1 && strays[0].Name == "sleep"
	})
	cancel()
	if err := sleep.Wait(); err == nil {
		t.Error("a cancelled command succeeds")
	}
	if err := h.AwaitIdle(bounded(t)); err != nil {
		t.Error(err)
	}
	h.PowerOff()
	if err := h.Command(bounded(t), "true").Run(); err == nil {
		t.Error("a command runs on a host without power")
	}
}

// Both networks must reach all hosts, even after a power off, and count their
// traffic separately.
func TestSecondNetwork(t *testing.T) {
	c := Start(t, Options{Hosts: 2, Second: true})
	h1, h2 := c.Hosts[0], c.Hosts[1]
	reach := func(addr string) {
		t.Helper()
		if out, err := h1.Command(t.Context(), "bash", "-c", "exec 3<>/dev/tcp/"+addr+"/22; read -t 10 -u 3 line; echo \"$line\"").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "SSH-") {
			t.Fatalf("%s: %v: %s", addr, err, out)
		}
	}
	reach(h2.SecondAddr)
	h2.PowerOff()
	h2.PowerOn()
	_, before, err := h2.SecondTraffic()
	if err != nil {
		t.Fatal(err)
	}
	reach(h2.SecondAddr)
	if h2.SecondAddr6 != "" {
		reach(h2.SecondAddr6)
	}
	reach(h2.Addr)
	if _, to, err := h2.SecondTraffic(); err != nil || to <= before {
		t.Errorf("eth1 brought %d bytes, then %d, %v", before, to, err)
	}
}
