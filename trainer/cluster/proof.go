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

// ErrProof is the error if a peer could not prove that it knows the job's
// secret. The peer belongs to no job, to another job, or to an earlier
// generation (run of all tasks) of this job.
var ErrProof = errors.New("peer did not prove the job's secret")

const (
	proofMagic = "plx-peer-1\n"
	nonceSize  = 32
	maxName    = 255
)

// Key is the secret key of one generation (run of all tasks) of one job.
type Key [sha256.Size]byte

// PeerKey derives the key of a generation (run of all tasks) from the job's
// secret. Since each generation has another key, tasks refuse connections from
// tasks of earlier generations.
func PeerKey(secret []byte, generation int) Key {
	mac := hmac.New(sha256.New, secret)
	io.WriteString(mac, "plx peer key, generation "+strconv.Itoa(generation)) // Write of a hash returns no error
	return Key(mac.Sum(nil))
}

// Dial proves to the peer at the other end of conn that this task is called
// self and knows key. The peer must prove that it is called peer and knows
// key. Dial fails when ctx ends, and after 10 s at the latest. After an error
// the caller must close conn.
//
// Protocol (challenge and response with HMAC-SHA256, which covers both names):
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
	rand.Read(c[:]) // rand.Read never returns an error
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
	// The peer closes the connection without a message if it rejects the proof
	// of this task.
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: connection closed", ErrProof)
	}
	return err
}

// Accept is the acceptor's side of [Dial]. It returns the dialler's name after
// the dialler has proved that it knows key and wants to reach this task.
// Before the proof, Accept reads about 600 bytes at most. If the dialler
// closes the connection before it has sent its proof, the error is not
// [ErrProof]: the dialler may just have given up.
//
// The function self returns this task's name for a dialler. Its argument is
// the dialler's name, which is not proved yet.
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
	rand.Read(s[:]) // rand.Read never returns an error
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
		mac.Write([]byte{byte(len(part))}) // the length before each name keeps ("ab", "c") different from ("a", "bc")
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

// proofTime is the time limit in which two tasks must prove to each other that
// they know the job's key.
const proofTime = 10 * time.Second

// bound sets a deadline: reads and writes of conn fail after ctx has ended, or
// after proofTime. The function it returns removes the deadline.
func bound(ctx context.Context, conn net.Conn) (release func()) {
	deadline := time.Now().Add(proofTime)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	conn.SetDeadline(deadline) // the error is ignored: a closed conn also fails at its first read or write
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if stop() {
			conn.SetDeadline(time.Time{})
		}
	}
}
