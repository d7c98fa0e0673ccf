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

// tlsConn is a connection that is encrypted with TLS.
type tlsConn struct {
	*tls.Conn
	write sync.Mutex // held during a write; guards the field small
	small []byte     // short buffers of one write, copied together so that TLS sends them in one record
}

// record is the maximum number of bytes of data that TLS sends in one record.
const record = 16 << 10

// WriteBuffers sends buffers and combines short ones in one TLS record. After
// an error it returns 0, although part of the data may have been sent.
func (c *tlsConn) WriteBuffers(buffers ...[]byte) (total int64, err error) {
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

// flush sends the short buffers that WriteBuffers has copied together. The
// caller holds c.write.
func (c *tlsConn) flush() error {
	if len(c.small) == 0 {
		return nil
	}
	_, err := c.Write(c.small)
	c.small = c.small[:0]
	return err
}

// encrypt runs the TLS handshake on conn. Both ends use the same certificate,
// whose key is derived from the job's secret, so only tasks of the job can
// have it.
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
	return &tlsConn{Conn: c}, nil
}

func configuration(key cluster.Key) (*tls.Config, error) {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte("plx tls certificate")) // Write of a hash returns no error
	private := ed25519.NewKeyFromSeed(mac.Sum(nil))
	public := private.Public().(ed25519.PublicKey)
	// Neither end checks the dates of the certificate, because the clocks of
	// hosts differ.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<33, 0)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}},
		ClientAuth:   tls.RequireAnyClientCert,
		// No authority signed the certificate, and it names no host. So the
		// usual verification is impossible. VerifyConnection instead demands
		// that the certificate has the job's own key.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 || !public.Equal(s.PeerCertificates[0].PublicKey) {
				return errors.New("the peer does not have the job's certificate")
			}
			return nil
		},
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true, // By default, TLS sends the first megabyte of a connection in small records.
	}, nil
}
