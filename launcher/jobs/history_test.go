package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// A history that a crash has truncated does not prevent reading the others.
func TestDamagedHistoryDoesNotHideOthers(t *testing.T) {
	var h metrics.History
	h.Add(time.UnixMilli(1000), metrics.Sample{{Name: metrics.Step, Number: 7}, {Name: "loss", Number: 0.5}})
	encoded, _ := h.AppendBinary(nil)
	all, damaged := histories(protocol.Kept{Histories: map[string][]byte{"worker:0": encoded, "worker:1": encoded[:len(encoded)-3], "worker:3": nil, "host": encoded}, Damaged: []string{"a"}})
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"host", "worker:0"}) {
		t.Errorf("histories of %v", got)
	}
	if got := all["worker:0"].Newest(); !maps.Equal(got, map[string]metrics.Number{"step": 7, "loss": 0.5}) {
		t.Errorf("newest: %v", got)
	}
	if len(damaged) != 3 || damaged[0] != "a" || !strings.HasPrefix(damaged[1], "the metrics of worker:1: ") || !strings.HasPrefix(damaged[2], "the metrics of worker:3: ") {
		t.Errorf("damaged: %q", damaged)
	}
}

// Lines have what docs/watch.md promises.
func TestPointsOfATask(t *testing.T) {
	var h metrics.History
	h.Add(time.UnixMilli(1500), metrics.Sample{{Name: "loss", Number: metrics.Number(math.NaN())}})
	for i := range 2049 {
		h.Add(time.UnixMilli(2000+int64(i)), metrics.Sample{{Name: metrics.Step, Number: metrics.Number(i)}, {Name: "acc", Number: metrics.Number(i)}})
	}
	points := pointsOf("h1", cluster.Chief, &h)
	if len(points) != 1026 {
		t.Fatalf("%d points", len(points))
	}
	for i, want := range map[int]string{
		0:    `{"time":"1970-01-01T00:00:02.001Z","host":"h1","task":"worker:0","metric":"acc","step":1,"value":1,"min":0,"max":1}`,
		1024: `{"time":"1970-01-01T00:00:04.048Z","host":"h1","task":"worker:0","metric":"acc","step":2048,"value":2048}`,
		1025: `{"time":"1970-01-01T00:00:01.500Z","host":"h1","task":"worker:0","metric":"loss","value":"NaN"}`,
	} {
		if text, err := json.Marshal(points[i]); err != nil || !bytes.Equal(text, []byte(want)) {
			t.Errorf("point %d: %s, %v, want %s", i, text, err, want)
		}
	}
}

func TestOnlyForgottenHosts(t *testing.T) {
	forgotten, other := fmt.Errorf("host h1: %w", hosts.ErrNoState), errors.New("no answer")
	for _, of := range []struct {
		err  error
		want bool
	}{{forgotten, true}, {other, false}, {errors.Join(forgotten, forgotten), true}, {errors.Join(forgotten, other), false}} {
		if got := onlyForgotten(of.err); got != of.want {
			t.Errorf("%v: %t", of.err, got)
		}
	}
}

func TestSteppedAddsAMissingStep(t *testing.T) {
	agents := map[string]metrics.Number{"loss": 1}
	if got := stepped(agents, 5); got["step"] != 5 || got["loss"] != 1 || len(agents) != 1 {
		t.Errorf("%v of %v", got, agents)
	}
	if got := stepped(map[string]metrics.Number{"step": 9}, 5); got["step"] != 9 {
		t.Errorf("the program's step became %v", got)
	}
	if got := stepped(nil, 0); got != nil {
		t.Errorf("%v of nothing", got)
	}
}

// An invalid address, or one in use, is reported as the user's mistake with a
// hint.
func TestListenRefusesBadAddresses(t *testing.T) {
	l, err := listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		t.Errorf("it listens on %s", ip)
	}
	for addr, want := range map[string]string{
		"9400": "want an address and a port", ":0": "it names no address", "[::]": "want an address and a port",
		"127.0.0.1:99999": "invalid port", l.Addr().String(): "the address is in use",
	} {
		got, err := listen(t.Context(), addr)
		if err == nil {
			got.Close()
			t.Errorf("--listen %s: no error", addr)
		} else if !strings.Contains(err.Error(), "--listen "+addr+": ") || !strings.Contains(err.Error(), want) || exit.Code(err) != exit.CodeUsage || exit.Hint(err) == "" {
			t.Errorf("--listen %s: %v, status %d, hint %q; want %q", addr, err, exit.Code(err), exit.Hint(err), want)
		}
	}
}
