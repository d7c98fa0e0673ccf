package ps

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// journal keeps what is logged.
type journal struct {
	mu    sync.Mutex
	lines map[slog.Level][]string
}

func (j *journal) logf(level slog.Level, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lines == nil {
		j.lines = map[slog.Level][]string{}
	}
	j.lines[level] = append(j.lines[level], fmt.Sprintf(format, args...))
}

func (j *journal) at(level slog.Level) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines[level]...)
}

func TestStrangersCostOneLineAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := &strangers{logf: j.logf}
		knock := func(n int) {
			for i := range n {
				s.refused(&net.TCPAddr{IP: net.IPv4(10, 77, 1, byte(i+1)), Port: 4000 + i}, cluster.ErrProof)
			}
		}
		knock(1)
		knock(37)
		want := []string{"refused a connection that did not prove the job's secret, from 10.77.1.1"}
		check := func() {
			t.Helper()
			synctest.Wait()
			if got := j.at(slog.LevelInfo); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		time.Sleep(summaryEvery - time.Millisecond)
		check()
		time.Sleep(time.Millisecond)
		want = append(want, "refused 37 connections that did not prove the job's secret, the last from 10.77.1.37")
		check()
		time.Sleep(time.Hour) // all is quiet
		check()
		knock(2)
		want = append(want, "refused a connection that did not prove the job's secret, from 10.77.1.1")
		check()
		s.end()
		knock(2)
		time.Sleep(time.Hour)
		check()
		if got := len(j.at(slog.LevelDebug)); got != 42 {
			t.Errorf("%d lines for debugging, want one for each of 42", got)
		}
	})
}

func TestUnprovedSpeaksPlainly(t *testing.T) {
	for _, err := range []error{
		cluster.ErrProof, io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded,
		&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded},
		&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
	} {
		if text := unproved(err); !strings.Contains(text, "prove the job's secret") && !strings.Contains(text, "proved the job's secret") ||
			strings.Contains(text, "tcp") || strings.Contains(text, "EOF") {
			t.Errorf("%v: %q", err, text)
		}
	}
}

// A server that is flooded stays quiet, and says nothing of those that its
// own end cut off.
func TestFloodedServerTellsOnce(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var j journal
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, ln, ServerConfig{Self: cluster.Task{Role: cluster.PS}, Workers: 1, Servers: 1, Logf: j.logf})
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for range 20 {
		conn := dial()
		conn.Write([]byte("GET / HTTP/1.1\r\nHost: nobody\r\n\r\n")) // refused half way, perhaps
		io.Copy(io.Discard, conn)                                    // until it hangs up
		conn.Close()
	}
	silent := dial()
	defer silent.Close()
	cancel()
	<-served
	if got := j.at(slog.LevelDebug); len(got) != 20 {
		t.Errorf("%d refusals, want 20: %q", len(got), got)
	}
	if got := j.at(slog.LevelInfo); len(got) != 1 || len(j.at(slog.LevelWarn)) != 0 {
		t.Errorf("told %q and %q", got, j.at(slog.LevelWarn))
	}
}
