package jobs

import (
	"bytes"
	"encoding/base64"
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
	"github.com/plx-run/plx/trainer/cluster"
)

// One file that a crash has cut, or a stranger has made, costs no other.
func TestParseReports(t *testing.T) {
	var h metrics.History
	h.Add(time.UnixMilli(1000), metrics.Sample{{Name: metrics.Step, Number: 7}, {Name: "loss", Number: 0.5}})
	encoded, _ := h.AppendBinary(nil)
	line := func(name string, content []byte) string {
		return name + " " + base64.StdEncoding.EncodeToString(content) + "\n"
	}
	text := line("worker-0", encoded) + line("worker-1", encoded[:len(encoded)-3]) + "worker-2 %\n" + line("worker-3", nil) + line(".worker-4.tmp", encoded) + "x\n\n" + line("ps-0", encoded)
	named := func(err error) error { return fmt.Errorf("host h1: %w", err) }
	r := parseReports(named, text)
	var tasks []string
	for task := range r.histories {
		tasks = append(tasks, task.String())
	}
	slices.Sort(tasks)
	if want := []string{"ps:0", "worker:0"}; !slices.Equal(tasks, want) {
		t.Errorf("histories of %v, want %v", tasks, want)
	}
	if got := r.histories[cluster.Chief].Newest(); !maps.Equal(got, map[string]metrics.Number{"step": 7, "loss": 0.5}) {
		t.Errorf("newest: %v", got)
	}
	if len(r.damaged) != 3 {
		t.Fatalf("damaged: %v", r.damaged)
	}
	for i, err := range r.damaged {
		if want := fmt.Sprintf("host h1: the metrics of worker:%d: ", i+1); !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Lines have what docs/watch.md promises.
func TestPoints(t *testing.T) {
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

func TestOnlyForgotten(t *testing.T) {
	forgotten, other := fmt.Errorf("host h1: %w", hosts.ErrForgotten), errors.New("no answer")
	for _, of := range []struct {
		err  error
		want bool
	}{{forgotten, true}, {other, false}, {errors.Join(forgotten, forgotten), true}, {errors.Join(forgotten, other), false}} {
		if got := onlyForgotten(of.err); got != of.want {
			t.Errorf("%v: %t", of.err, got)
		}
	}
}

func TestStepped(t *testing.T) {
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

// An address that cannot be, or is in use, is the user's mistake, with a cure.
func TestListen(t *testing.T) {
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
