package inetd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/netnice/netnice/internal/account"
)

// credentials are the user and the groups to which a session changes.
type credentials struct {
	uid, gid int
	groups   []int // the first is gid; others are supplementary
}

// credentialsOf looks up a user, and a group in place of the user's own if one is named.
func credentialsOf(ctx context.Context, accounts *account.Directory, name, group string) (c credentials, err error) {
	u, err := accounts.User(ctx, name)
	if err != nil {
		return c, err
	}
	list, err := accounts.Groups(ctx, u)
	if err != nil {
		return c, err
	}
	c = credentials{uid: int(u.UID), gid: int(u.GID)}
	if group != "" {
		g, err := accounts.Group(ctx, group)
		if err != nil {
			return c, err
		}
		c.gid = int(g.GID)
	}
	c.groups = []int{c.gid}
	for _, gid := range append([]uint32{u.GID}, list...) {
		if !slices.Contains(c.groups, int(gid)) {
			c.groups = append(c.groups, int(gid))
		}
	}
	return c, nil
}

// Become changes the user and group of this process for good.
func Become(ctx context.Context, accounts *account.Directory, name, group string) error {
	c, err := credentialsOf(ctx, accounts, name, group)
	if err != nil {
		return err
	}
	if c.uid == 0 && os.Getuid() == 0 && c.gid == os.Getgid() {
		return nil
	}
	if err := syscall.Setgroups(c.groups); err != nil {
		return fmt.Errorf("take the groups of %s: %w", name, err)
	}
	if err := syscall.Setgid(c.gid); err != nil {
		return fmt.Errorf("take the group of %s: %w", name, err)
	}
	if err := syscall.Setuid(c.uid); err != nil {
		return fmt.Errorf("become %s: %w", name, err)
	}
	return nil
}
