package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"os"
	"time"

	"github.com/quic-go/quic-go"
)

// These agents speak QUIC.

const quicProtocol = "netnice-e2e"

// serveByQUIC sends a file to each client.
func serveByQUIC(address, path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	l, err := quic.ListenAddr(address, &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
		NextProtos:   []string{quicProtocol},
	}, nil)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		conn, err := l.Accept(context.Background())
		if err != nil {
			return err
		}
		go func() {
			if err := sendFile(conn, path); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
}

func sendFile(conn *quic.Conn, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	stream, err := conn.OpenUniStream()
	if err != nil {
		return err
	}
	if _, err := io.Copy(stream, f); err != nil {
		return err
	}
	return stream.Close()
}

// fetchQUIC writes a server's data into a file.
func fetchQUIC(address, path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	conn, err := quic.DialAddr(ctx, address, &tls.Config{
		InsecureSkipVerify: true, // a key of its own for each run
		NextProtos:         []string{quicProtocol},
	}, nil)
	if err != nil {
		return err
	}
	stream, err := conn.AcceptUniStream(ctx)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, stream); err != nil {
		return err
	}
	if err := conn.CloseWithError(0, ""); err != nil {
		return err
	}
	return f.Close()
}
