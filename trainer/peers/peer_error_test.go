package peers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/wire"
)

func TestReportsSurviveEncoding(t *testing.T) {
	blamed := &PeerError{Task: worker(1), Addr: "10.0.0.1:4000", Err: errors.New("closed by the peer")}
	for _, test := range []struct {
		err  error
		want string
		peer bool
	}{
		{errors.New("out of memory"), "out of memory", false},
		{blamed, "worker:1 (10.0.0.1:4000): closed by the peer", true},
		{fmt.Errorf("step 7: %w", blamed), "worker:1 (10.0.0.1:4000): closed by the peer", true},
		{errors.New(""), "", false},
		{&PeerError{Err: errors.New("nameless")}, ":0 (): nameless", false},
	} {
		got := DecodeReport(EncodeReport(test.err))
		var peer *PeerError
		if got.Error() != test.want || errors.As(got, &peer) != test.peer {
			t.Errorf("%v came as %v", test.err, got)
		}
	}
	long := &PeerError{Task: worker(1), Addr: strings.Repeat("\x00", 1<<20), Err: errors.New(strings.Repeat("\xff\x00", 1<<20))}
	if n := len(EncodeReport(long)); n > maxReport {
		t.Errorf("report of %d bytes", n)
	}
	if got := DecodeReport([]byte("{")); !strings.Contains(got.Error(), "unreadable") {
		t.Errorf("garbage came as %v", got)
	}
}

func TestReadReportRejectsLongReports(t *testing.T) {
	near, far := net.Pipe()
	a, b := wire.NewConn(near, 4, patience.Limit), wire.NewConn(far, 4, patience.Limit)
	defer a.Close()
	defer b.Close()
	go a.Send(wire.Frame{Header: wire.Header{Kind: wire.Error}, Payload: EncodeReport(io.EOF)})
	h, err := b.Next()
	if err != nil {
		t.Fatal(err)
	}
	if reported, err := ReadReport(b, h); err != nil || reported.Error() != "EOF" {
		t.Errorf("%v, %v", reported, err)
	}
	if _, err := ReadReport(b, wire.Header{Length: maxReport + 1}); err == nil {
		t.Error("a report of any length")
	}
	b.Close()
	if _, err := ReadReport(b, wire.Header{Length: 10}); err == nil {
		t.Error("a report out of nothing")
	}
}

func TestLostReturnsReadableErrors(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{io.EOF, "connection lost: closed by the peer"},
		{io.ErrUnexpectedEOF, "connection lost: closed by the peer"},
		{os.NewSyscallError("read", syscall.ECONNRESET), "connection lost: read: connection reset by peer"},
		{wire.ErrPeerTimeout, "silent"},
	} {
		if got := Lost(test.err); got.Error() != test.want {
			t.Errorf("%v: %q, want %q", test.err, got, test.want)
		}
	}
}

func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"cause":"x","peer":"worker:1","addr":"a:1"}`))
	f.Add(EncodeReport(&PeerError{Task: cluster.Chief, Addr: "10.0.0.1:1", Err: io.EOF}))
	f.Fuzz(func(t *testing.T, body []byte) {
		first := DecodeReport(body)
		again := DecodeReport(EncodeReport(first))
		if len(body) < maxReport/16 && !strings.HasPrefix(first.Error(), "unreadable") && again.Error() != first.Error() {
			t.Errorf("%q became %q", first, again)
		}
	})
}
