package testhosts

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

// way sends datagrams between the test and a host, in both directions.
type way struct {
	t     *testing.T
	c     *Cluster
	h     *Host
	here  net.PacketConn
	there net.Conn
}

func newWay(t *testing.T, c *Cluster) *way {
	t.Helper()
	w := &way{t: t, c: c, h: c.Hosts[0]}
	mustSSH(t, c, w.h, "true") // so that both sides know each other's MAC address
	var err error
	if w.here, err = net.ListenPacket("udp", c.Gateway+":0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.here.Close() })
	// No process listens on this port; the host's kernel counts the datagrams.
	if w.there, err = net.Dial("udp", w.h.Addr+":9"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.there.Close() })
	return w
}

// most returns how long to wait for a datagram: long if it should arrive,
// short if it should not.
func most(arrives bool) time.Duration {
	if arrives {
		return patience.Limit
	}
	return 300 * time.Millisecond
}

// to reports whether a datagram that the test sends reaches the host.
func (w *way) to(limit time.Duration) bool {
	before := w.arrived()
	if _, err := w.there.Write([]byte("x")); err != nil {
		w.there.Write([]byte("x")) // the error is ignored: it is about an earlier datagram, to a port without a listener
	}
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if w.arrived() > before {
			return true
		}
	}
	return w.arrived() > before // check once more, because the test may have been suspended until the timeout
}

// arrived returns how many datagrams have reached ports of the host that have
// no listener.
func (w *way) arrived() int {
	w.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/snmp", w.h.boot.pid()))
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[0] == "Udp:" && fields[1] != "InDatagrams" {
			n, err := strconv.Atoi(fields[2])
			if err != nil {
				w.t.Fatal(err)
			}
			return n
		}
	}
	w.t.Fatalf("no count of datagrams in %s", text)
	return 0
}

// from reports whether a datagram that the host sends reaches the test.
func (w *way) from(limit time.Duration) bool {
	w.t.Helper()
	_, port, _ := net.SplitHostPort(w.here.LocalAddr().String())
	if out, err := w.h.Command(bounded(w.t), "bash", "-c", "echo x >/dev/udp/"+w.c.Gateway+"/"+port).CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	if err := w.here.SetReadDeadline(time.Now().Add(limit)); err != nil {
		w.t.Fatal(err)
	}
	_, _, err := w.here.ReadFrom(make([]byte, 10))
	return err == nil
}

func (w *way) check(when string, to, from bool) {
	w.t.Helper()
	if got := w.to(most(to)); got != to {
		w.t.Errorf("%s: to the host: %v", when, got)
	}
	if got := w.from(most(from)); got != from {
		w.t.Errorf("%s: from the host: %v", when, got)
	}
	if to && from {
		eventually(w.t, when+": it answers", func() bool { return reachable(w.h) })
	} else if reachable(w.h) {
		w.t.Errorf("%s: it answers", when)
	}
}

func TestOneWayCuts(t *testing.T) {
	c := Start(t, Options{Hosts: 2})
	w := newWay(t, c)
	w.check("whole", true, true)

	w.h.Mute()
	w.check("muted", true, false)
	if from, _, err := w.h.Queued(); err != nil || from.Dropped == 0 {
		t.Errorf("muted: %+v, %v", from, err)
	}
	w.h.Heal()
	w.check("healed", true, true)

	w.h.Deafen()
	w.check("deaf", false, true)
	if _, to, err := w.h.Queued(); err != nil || to.Dropped == 0 {
		t.Errorf("deaf: %+v, %v", to, err)
	}
	w.h.Heal()
	w.check("healed again", true, true)
}

func TestMachineCanBeCutOffFromItsHosts(t *testing.T) {
	c := Start(t, Options{Hosts: 2})
	w := newWay(t, c)
	between := func() bool {
		out, err := w.h.Command(bounded(t), "bash", "-c", "exec 3<>/dev/tcp/"+c.Hosts[1].Addr+"/22; head -c 4 <&3").Output()
		return err == nil && string(out) == "SSH-"
	}
	c.Mute()
	w.check("muted", false, true)
	if q, err := c.Queued(); err != nil || q.Dropped == 0 {
		t.Errorf("muted: %+v, %v", q, err)
	}
	c.Deafen()
	w.check("cut off", false, false)
	if !between() {
		t.Error("the hosts do not reach one another")
	}
	c.Heal()
	w.check("healed", true, true)
	c.Deafen()
	w.check("deaf", true, false)
	c.Heal()
	w.check("healed again", true, true)
	c.Shape("1mbit")
	mustSSH(t, c, w.h, "head -c 1 >/dev/null </dev/zero; true")
	c.Heal()
}
