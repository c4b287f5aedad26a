package identity

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/enforce"
)

// Accounts returns the users and groups that the resolver asks.
func (r *Resolver) Accounts() *account.Directory { return r.accounts }

// user resolves a user by name, or by a uid, which need not have a name.
func (r *Resolver) user(ctx context.Context, id string) (Resolved, error) {
	uid, err := r.accounts.UID(ctx, id)
	if err != nil {
		return Resolved{}, noAccount("user", "passwd", id, err, "getent passwd shows names and uids; a uid is understood too: --user UID")
	}
	u, err := r.accounts.UserOf(ctx, uid)
	if err != nil { // the uid has no name, or the name service does not answer now
		u.Name = strconv.FormatUint(uint64(uid), 10)
	}
	return userNamed(uid, u.Name), nil
}

// noAccount returns the error for an unknown account. It distinguishes an account that does not exist from a name
// service that does not answer. Both are "not found" for callers, which then find a limit on the account by its name.
func noAccount(kind, database, name string, err error, hint string) error {
	e := &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("no %s is called %q", kind, name), Hint: hint, Cause: errors.Join(ErrNotFound, err)}
	if !errors.Is(err, account.ErrUnknown) {
		e.Code, e.Message = api.CodeInternal, fmt.Sprintf("the %s %q cannot be looked up: %v", kind, name, err)
		e.Hint = fmt.Sprintf("time getent %s %s  asks the same", database, name)
	}
	return e
}

// User returns the subject of all processes of a uid. It never waits: a name that is not in the files is known only
// at the next call.
func User(uid uint32) Resolved { return userNamed(uid, UserName(uid)) }

func userNamed(uid uint32, name string) Resolved {
	return Resolved{
		Subject: api.Subject{Kind: api.KindUser, ID: name},
		Kind:    enforce.KindUser,
		Key:     uint64(uid),
		UID:     uid,
		Name:    name,
	}
}

// UserName returns the name of a uid, or the number where it has none. It never waits, like User.
func UserName(uid uint32) string {
	if u, ok := account.Machine().Known(uid); ok {
		return u.Name
	}
	return strconv.FormatUint(uint64(uid), 10)
}

// OwnerName returns the name of a limit's owner in lists and events: that of user uid, or "admin".
func OwnerName(owner enforce.Owner, uid uint32) string {
	if owner == enforce.OwnerAdmin {
		return api.OwnerAdmin
	}
	return UserName(uid)
}

// Group finds a group's id by its name, or by its number.
func (r *Resolver) Group(ctx context.Context, name string) (uint32, error) {
	gid, err := r.accounts.GID(ctx, name)
	if err != nil {
		return 0, noAccount("group", "group", name, err, "getent group")
	}
	return gid, nil
}
