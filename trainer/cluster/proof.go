package cluster

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// SecretSize is the size of a job's secret in bytes.
const SecretSize = 32

// ErrProof says that a peer could not prove the job's secret: a stranger, or
// a task of another job or generation.
var ErrProof = errors.New("peer did not prove the job's secret")

const (
	proofMagic = "plx-peer-1\n"
	nonceSize  = 32
	maxName    = 255
)

// Key proves membership in one generation of one job.
type Key [sha256.Size]byte

// PeerKey derives the key of a generation from the job's secret, so that a
// task of an earlier generation is refused.
func PeerKey(secret []byte, generation int) Key {
	mac := hmac.New(sha256.New, secret)
	io.WriteString(mac, "plx peer key, generation "+strconv.Itoa(generation)) // a hash never fails to write
	return Key(mac.Sum(nil))
}

// Dial proves self to the task called peer at the other end of conn and makes
// it prove itself. It returns in bounded time: when ctx ends, or after its
// deadline. On an error the caller closes conn.
//
// Protocol (challenge and response, HMAC-SHA256, both names inside):
//
//	dialler  -> magic, len self, self, len peer, peer, nonce c
//	acceptor -> nonce s
//	dialler  -> HMAC("dial",   self, peer, c, s)
//	acceptor -> HMAC("accept", self, peer, c, s)
func Dial(ctx context.Context, conn net.Conn, key Key, self, peer string) error {
	defer bound(ctx, conn)()
	var c, s [nonceSize]byte
	if _, err := rand.Read(c[:]); err != nil {
		return fmt.Errorf("prove to %s: %w", peer, err)
	}
	if len(self) > maxName || len(peer) > maxName {
		return fmt.Errorf("prove to %s: name longer than %d bytes", peer, maxName)
	}
	hello := append([]byte(proofMagic), byte(len(self)))
	hello = append(append(append(hello, self...), byte(len(peer))), peer...)
	if _, err := conn.Write(append(hello, c[:]...)); err != nil {
		return fmt.Errorf("prove to %s: %w", peer, err)
	}
	if _, err := io.ReadFull(conn, s[:]); err != nil {
		return fmt.Errorf("prove to %s: %w", peer, err)
	}
	if _, err := conn.Write(tag(key, "dial", self, peer, c, s)); err != nil {
		return fmt.Errorf("prove to %s: %w", peer, err)
	}
	err := expect(conn, tag(key, "accept", self, peer, c, s))
	if errors.Is(err, io.EOF) { // so does one that does not believe it
		err = fmt.Errorf("%w: connection closed", ErrProof)
	}
	if err != nil {
		return fmt.Errorf("prove to %s: %w", peer, err)
	}
	return nil
}

// Accept is the other side of [Dial]. It returns the dialler's name once that
// has proved the secret and that it meant to reach self. Nothing that arrives
// before is believed, and at most about 600 bytes of it are read. A dialler that
// hangs up first is no [ErrProof]: one that gave up does that.
func Accept(ctx context.Context, conn net.Conn, key Key, self string) (peer string, err error) {
	defer bound(ctx, conn)()
	if err := expect(conn, []byte(proofMagic)); err != nil {
		return "", err
	}
	peer, err = readName(conn)
	if err != nil {
		return "", err
	}
	meant, err := readName(conn)
	if err != nil {
		return "", err
	}
	var c, s [nonceSize]byte
	if _, err := io.ReadFull(conn, c[:]); err != nil {
		return "", err
	}
	if _, err := rand.Read(s[:]); err != nil {
		return "", err
	}
	if _, err := conn.Write(s[:]); err != nil {
		return "", err
	}
	if err := expect(conn, tag(key, "dial", peer, meant, c, s)); err != nil {
		return "", err
	}
	if meant != self {
		return "", fmt.Errorf("%s meant to reach %s, this is %s: %w", peer, meant, self, ErrProof)
	}
	_, err = conn.Write(tag(key, "accept", peer, meant, c, s))
	return peer, err
}

func tag(key Key, side, dialler, acceptor string, c, s [nonceSize]byte) []byte {
	mac := hmac.New(sha256.New, key[:])
	for _, part := range [][]byte{[]byte(side), []byte(dialler), []byte(acceptor), c[:], s[:]} {
		mac.Write([]byte{byte(len(part))}) // lengths keep two names from running together
		mac.Write(part)
	}
	return mac.Sum(nil)
}

func readName(r io.Reader) (string, error) {
	var size [1]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return "", err
	}
	name := make([]byte, size[0])
	_, err := io.ReadFull(r, name)
	return string(name), err
}

func expect(r io.Reader, want []byte) error {
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil {
		return err
	}
	if !hmac.Equal(got, want) {
		return ErrProof
	}
	return nil
}

// proofTime bounds a handshake whose context has no deadline.
const proofTime = 10 * time.Second

// bound makes conn's reads and writes end with ctx, at the latest after
// proofTime. The function it returns takes the deadline away again.
func bound(ctx context.Context, conn net.Conn) (release func()) {
	deadline := time.Now().Add(proofTime)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	conn.SetDeadline(deadline) // a closed conn fails at its first use
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if stop() {
			conn.SetDeadline(time.Time{})
		}
	}
}
