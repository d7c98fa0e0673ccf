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

// ErrProof says that a peer could not prove the job's secret: it belongs to no job, to
// another job or to another generation.
var ErrProof = errors.New("peer did not prove the job's secret")

const (
	proofMagic = "plx-peer-1\n"
	nonceSize  = 32
	maxName    = 255
)

// Key is the secret of one generation of one job.
type Key [sha256.Size]byte

// PeerKey derives the key of a generation from the job's secret, so that tasks refuse
// those of earlier generations.
func PeerKey(secret []byte, generation int) Key {
	mac := hmac.New(sha256.New, secret)
	io.WriteString(mac, "plx peer key, generation "+strconv.Itoa(generation)) // a hash never fails to write
	return Key(mac.Sum(nil))
}

// Dial proves to the other end of conn that this task is called self and knows key. The
// other end must prove that it is called peer and knows key. Dial returns when ctx ends, and after
// 10 s at the latest. On an error the caller closes conn.
//
// Protocol (challenge and response, HMAC-SHA256, both names inside):
//
//	dialler  -> magic, len self, self, len peer, peer, nonce c
//	acceptor -> nonce s
//	dialler  -> HMAC("dial",   self, peer, c, s)
//	acceptor -> HMAC("accept", self, peer, c, s)
func Dial(ctx context.Context, conn net.Conn, key Key, self, peer string) error {
	defer bound(ctx, conn)()
	if err := prove(conn, key, self, peer); err != nil {
		return fmt.Errorf("prove to %s: %w", peer, err)
	}
	return nil
}

func prove(conn net.Conn, key Key, self, peer string) error {
	var c, s [nonceSize]byte
	rand.Read(c[:]) // never fails
	if len(self) > maxName || len(peer) > maxName {
		return fmt.Errorf("name longer than %d bytes", maxName)
	}
	hello := append([]byte(proofMagic), byte(len(self)))
	hello = append(append(append(hello, self...), byte(len(peer))), peer...)
	if _, err := conn.Write(append(hello, c[:]...)); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, s[:]); err != nil {
		return err
	}
	if _, err := conn.Write(tag(key, "dial", self, peer, c, s)); err != nil {
		return err
	}
	err := expect(conn, tag(key, "accept", self, peer, c, s))
	if errors.Is(err, io.EOF) { // a peer that refuses the proof closes the connection
		err = fmt.Errorf("%w: connection closed", ErrProof)
	}
	return err
}

// Accept is the other side of [Dial]. It returns the dialler's name after the dialler
// has proved that it knows key and means to reach self. Before that it reads at most
// about 600 bytes. If the dialler hangs up, the error is not [ErrProof]: a dialler that
// gives up does that.
//
// self returns what this task is called by a dialler of a name, which is not proved yet.
func Accept(ctx context.Context, conn net.Conn, key Key, self func(dialler string) string) (peer string, err error) {
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
	rand.Read(s[:]) // never fails
	if _, err := conn.Write(s[:]); err != nil {
		return "", err
	}
	if err := expect(conn, tag(key, "dial", peer, meant, c, s)); err != nil {
		return "", err
	}
	if own := self(peer); meant != own {
		return "", fmt.Errorf("%s meant to reach %s, this is %s: %w", peer, meant, own, ErrProof)
	}
	_, err = conn.Write(tag(key, "accept", peer, meant, c, s))
	return peer, err
}

func tag(key Key, side, dialler, acceptor string, c, s [nonceSize]byte) []byte {
	mac := hmac.New(sha256.New, key[:])
	for _, part := range [][]byte{[]byte(side), []byte(dialler), []byte(acceptor), c[:], s[:]} {
		mac.Write([]byte{byte(len(part))}) // lengths separate the two names
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

// proofTime bounds a handshake.
const proofTime = 10 * time.Second

// bound makes conn's reads and writes fail after ctx has ended, or after proofTime.
// release removes the deadline.
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
