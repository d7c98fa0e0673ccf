package channel

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// sealed is an encrypted connection.
type sealed struct {
	*tls.Conn
	write sync.Mutex // guards small
	small []byte     // short buffers that are sent together
}

// record is the most that TLS sends in one record.
const record = 16 << 10

// WriteBuffers sends buffers, short ones together. After an error it returns 0,
// although some may have been sent.
func (c *sealed) WriteBuffers(buffers ...[]byte) (total int64, err error) {
	c.write.Lock()
	defer c.write.Unlock()
	c.small = c.small[:0]
	for _, b := range buffers {
		total += int64(len(b))
		n := min(record-len(c.small), len(b))
		c.small = append(c.small, b[:n]...)
		if b = b[n:]; len(b) == 0 {
			continue
		}
		if err := c.flush(); err != nil {
			return 0, err
		}
		if _, err := c.Write(b); err != nil {
			return 0, err
		}
	}
	if err := c.flush(); err != nil {
		return 0, err
	}
	return total, nil
}

// flush sends the short buffers. The caller holds c.write.
func (c *sealed) flush() error {
	if len(c.small) == 0 {
		return nil
	}
	_, err := c.Write(c.small)
	c.small = c.small[:0]
	return err
}

// encrypt makes an encrypted connection of conn. Both ends have the same certificate,
// which only those can make that know the job's secret.
func encrypt(ctx context.Context, conn net.Conn, key cluster.Key, dialled bool) (net.Conn, error) {
	config, err := configuration(key)
	if err != nil {
		return nil, err
	}
	c := tls.Server(conn, config)
	if dialled {
		c = tls.Client(conn, config)
	}
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return &sealed{Conn: c}, nil
}

func configuration(key cluster.Key) (*tls.Config, error) {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte("plx tls certificate")) // a hash never fails to write
	private := ed25519.NewKeyFromSeed(mac.Sum(nil))
	public := private.Public().(ed25519.PublicKey)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<33, 0)} // nobody looks at the dates: hosts' clocks differ
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}},
		ClientAuth:   tls.RequireAnyClientCert,
		// There is no authority and no name to verify: VerifyConnection demands the job's own key.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 || !public.Equal(s.PeerCertificates[0].PublicKey) {
				return errors.New("the other end has not the job's certificate")
			}
			return nil
		},
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true, // the first megabyte would travel in small records
	}, nil
}
