package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// Of a full Ethernet frame of 1514 bytes, as the kernel's limiter counts them,
// TCP carries 1448: 14 are Ethernet's, 20 IP's, 32 TCP's with its timestamps.
const (
	payload = 1448
	frame   = 1514
)

// net is what TCP can carry over a link of a rate, in bytes per second.
func netRate(bits float64) float64 { return bits / 8 * payload / frame }

// Raw is what TCP carried between two hosts, with nothing else on the links.
type Raw struct {
	Rate   string  `json:"rate"`
	Net    float64 `json:"net"`    // bytes per second that the rate leaves for TCP
	One    float64 `json:"one"`    // bytes per second from the first host to the second
	There  float64 `json:"there"`  // bytes per second from the first host to the second while both directions are busy
	Back   float64 `json:"back"`   // bytes per second from the second host to the first at that time
	Cores  float64 `json:"cores"`  // mean number of busy cores of the machine while both directions carried data
	PerGiB float64 `json:"perGiB"` // seconds of a core for a GiB sent and received
}

// The program is its own tool on the hosts, under these names.
const (
	receiving = "receive-bytes"
	sending   = "send-bytes"
	port      = 47101
)

// tool is what the program does on a host: to receive bytes until the sender
// closes and print how many came in a second, or to send for some seconds.
func tool(args []string) error {
	switch {
	case len(args) == 1 && args[0] == receiving:
		return receive(os.Stdout)
	case len(args) == 3 && args[0] == sending:
		seconds, err := strconv.ParseFloat(args[2], 64)
		if err != nil {
			return err
		}
		return send(args[1], time.Duration(seconds*float64(time.Second)))
	}
	return fmt.Errorf("%q: not a tool", args)
}

func receive(w io.Writer) error {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	defer listener.Close()
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	buffer, total := make([]byte, 1<<20), 0
	_, err = conn.Read(buffer) // what came before the clock starts does not count
	begin, last := time.Now(), time.Now()
	for err == nil {
		var n int
		n, err = conn.Read(buffer)
		total, last = total+n, time.Now()
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	_, err = fmt.Fprintf(w, "%f\n", float64(total)/last.Sub(begin).Seconds())
	return err
}

func send(addr string, length time.Duration) error {
	var conn net.Conn
	var err error
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if conn, err = net.DialTimeout("tcp", addr, time.Second); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return err
		}
	}
	defer conn.Close()
	buffer := make([]byte, 1<<20)
	for end := time.Now().Add(length); time.Now().Before(end); {
		if _, err := conn.Write(buffer); err != nil {
			return err
		}
	}
	return nil
}

// measureRaw measures the links of two hosts as they are.
func measureRaw(ctx context.Context, a, b *testhosts.Host, rate string, seconds float64) (Raw, error) {
	bits, err := testhosts.ParseRate(rate)
	if err != nil {
		return Raw{}, err
	}
	r := Raw{Rate: rate, Net: netRate(bits)}
	if r.One, err = transfer(ctx, a, b, seconds); err != nil {
		return r, err
	}
	before, err := readCPU()
	if err != nil {
		return r, err
	}
	back, failed := make(chan error, 1), error(nil)
	go func() {
		var err error
		r.Back, err = transfer(ctx, b, a, seconds)
		back <- err
	}()
	r.There, failed = transfer(ctx, a, b, seconds)
	if err := errors.Join(failed, <-back); err != nil {
		return r, err
	}
	after, err := readCPU()
	if err != nil {
		return r, err
	}
	r.Cores = after.busyCores(before)
	r.PerGiB = r.Cores / ((r.There + r.Back) / (1 << 30))
	return r, nil
}

// transfer sends from one host to another and returns bytes per second.
func transfer(ctx context.Context, from, to *testhosts.Host, seconds float64) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second))+30*time.Second)
	defer cancel()
	receiver := onHost(ctx, to, receiving)
	var out, complaint bytes.Buffer
	receiver.Stdout, receiver.Stderr = &out, &complaint
	if err := receiver.Start(); err != nil {
		return 0, err
	}
	sender := onHost(ctx, from, sending, fmt.Sprintf("%s:%d", to.Addr, port), fmt.Sprint(seconds))
	said, err := sender.CombinedOutput()
	if err != nil {
		cancel() // nobody will come
		err = fmt.Errorf("send: %w: %s", err, said)
	}
	if ended := receiver.Wait(); ended != nil {
		return 0, errors.Join(err, fmt.Errorf("receive: %w: %s", ended, &complaint))
	}
	return strconv.ParseFloat(string(bytes.TrimSpace(out.Bytes())), 64)
}

// toolName is the program's name in the hosts' homes.
const toolName = "plx-bench-link"

// onHost runs the program as a tool on a host.
func onHost(ctx context.Context, h *testhosts.Host, args ...string) *exec.Cmd {
	return h.Command(ctx, "sh", append([]string{"-c", `exec "$HOME/` + toolName + `" "$@"`, toolName}, args...)...)
}

// installTool puts this program into the home of a host.
func installTool(h *testhosts.Host) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(own)
	if err != nil {
		return err
	}
	return executable.Write(filepath.Join(h.HomeDir, toolName), program, 0o755)
}
