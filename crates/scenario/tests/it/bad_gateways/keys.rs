//! Tests of key files, and of the keys of peers.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use skybraid_gateway::PrivateKey;
use skybraid_scenario::{GatewayFile, read_private_key};

use super::{AIRCRAFT, outcome_of};
use crate::common::first_line;

/// Creates a key file with the given text and mode in a folder of the test.
fn key_file(test: &str, text: &str, mode: u32) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("skybraid-{test}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("aircraft.key");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    file
}

#[test]
fn an_invalid_or_readable_key_file_is_rejected() {
    let text = format!("{}\n", PrivateKey([7; 32]).to_text().as_str());
    let file = key_file("modes", &text, 0o600);
    let user = fs::metadata(&file).unwrap().uid();
    let outcome_of = |file: &Path, user: u32| match read_private_key(file, "key", user) {
        Ok(_) => "accepted".to_string(),
        Err(error) => error.to_string().replace(&file.display().to_string(), "FILE"),
    };
    assert_eq!(outcome_of(&file, user), "accepted");
    for (mode, shown) in [(0o640, "0640"), (0o604, "0604"), (0o620, "0620")] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(
            outcome_of(&file, user),
            format!(
                "FILE: others may read or change it (mode {shown}), expected its owner alone; `chmod \
                 600 FILE` mends that, and whoever read it meanwhile has the key (named by key)"
            )
        );
    }
    let file = key_file("modes", "secret but no key", 0o600);
    assert_eq!(
        outcome_of(&file, user),
        "FILE: found 17 characters that are no key, expected 44 of Base64, as `skybraid-node keygen` \
         writes them (named by key)"
    );
    let folder = file.parent().unwrap();
    assert_eq!(outcome_of(folder, user), "FILE: found a folder, expected a file (named by key)");
    assert_eq!(
        outcome_of(&folder.join("none"), user),
        "FILE: there is no such file; `skybraid-node keygen FILE` makes one (named by key)"
    );
    if user != 0 {
        let expected = format!(
            "FILE: belongs to user {user}, expected root or user 0, who asks for it; `chown` mends \
             that (named by key)"
        );
        assert_eq!(outcome_of(&file, 0), expected);
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_own_public_key_is_rejected_as_a_peer() {
    let private = PrivateKey([7; 32]);
    let file = key_file("own", &private.to_text(), 0o600);
    let user = fs::metadata(&file).unwrap().uid();
    let other = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let place = file.with_file_name("kite.toml");
    let ours = AIRCRAFT.replace(other, &private.public().to_string());
    let read = GatewayFile::parse(&ours, &place).unwrap().private_key(user);
    assert_eq!(
        first_line(&read.unwrap_err().to_string()),
        format!(
            "{}:4: peer: this is the public key of this end's own `key`, expected that of the other \
             end: `skybraid-node pubkey FILE` there prints it",
            place.display()
        )
    );
    let read = GatewayFile::parse(AIRCRAFT, &place).unwrap().private_key(user).unwrap();
    assert!(read == private);
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn a_signing_key_is_read_in_three_forms() {
    let private = PrivateKey([7; 32]);
    let file = key_file("signing", &private.to_text(), 0o600);
    let user = fs::metadata(&file).unwrap().uid();
    let place = file.with_file_name("kite.toml");
    let text = format!("{AIRCRAFT}[signing]\nkey = \"mavlink.key\"\n");
    let signing = file.with_file_name("mavlink.key");
    let secrets = |bytes: &[u8], mode: u32| {
        fs::write(&signing, bytes).unwrap();
        fs::set_permissions(&signing, fs::Permissions::from_mode(mode)).unwrap();
        let read = GatewayFile::parse(&text, &place).unwrap().secrets(user);
        read.map_err(|error| error.to_string().replace(&signing.display().to_string(), "FILE"))
    };
    let hex = "61".repeat(32);
    let base64 = PrivateKey([0x61; 32]).to_text();
    for good in [hex.as_bytes(), base64.as_bytes(), &[0x61; 32]] {
        assert_eq!(secrets(good, 0o600).unwrap().signing.unwrap().0, [0x61; 32]);
    }
    assert_eq!(
        secrets(b"my passphrase\n", 0o600).unwrap_err(),
        "FILE: found 14 bytes that are no key, expected 64 hexadecimal digits, 44 characters of Base64 \
         or 32 bytes as they are (named by signing.key)"
    );
    let open = secrets(hex.as_bytes(), 0o644).unwrap_err();
    assert!(open.contains("mode 0644") && open.ends_with("(named by signing.key)"), "{open}");
    fs::remove_file(&signing).unwrap();
    let missing = GatewayFile::parse(&text, &place).unwrap().secrets(user).unwrap_err().to_string();
    assert!(missing.contains("there is no such file, expected the key of signed"), "{missing}");
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn several_peers_are_accepted_and_reported_by_index() {
    let other = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let own = PrivateKey([7; 32]).public().to_string();
    let third = PrivateKey([9; 32]).public().to_string();
    let peers = |keys: &[&str]| {
        let list: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
        AIRCRAFT.replace(&format!("\"{other}\""), &format!("[{}]", list.join(", ")))
    };
    assert_eq!(outcome_of(&peers(&[other, &third])), "accepted, warnings: []");
    assert_eq!(outcome_of(&peers(&[])), "kite.toml:4: peer: found 0 keys, expected 1 to 8");
    assert_eq!(
        outcome_of(&peers(&[other, &third, other])),
        "kite.toml:4: peer[2]: found the key of peer[0] again, expected each once"
    );
    assert_eq!(
        outcome_of(&peers(&[other, "shorter"])),
        "kite.toml:4: peer[1]: found `shorter`, expected a key: 44 characters of Base64"
    );
    let file = key_file("peers", &PrivateKey([7; 32]).to_text(), 0o600);
    let user = fs::metadata(&file).unwrap().uid();
    let place = file.with_file_name("kite.toml");
    let read = GatewayFile::parse(&peers(&[other, &own]), &place).unwrap().private_key(user);
    let error = first_line(&read.unwrap_err().to_string());
    assert!(error.contains("kite.toml:4: peer[1]: "), "{error}");

    let text = AIRCRAFT.replace("[path.lte]", "psk = \"both.psk\"\n[path.lte]");
    let secrets = || GatewayFile::parse(&text, &place).unwrap().secrets(user);
    let missing = secrets().unwrap_err().to_string();
    assert!(missing.contains("there is no such file; `skybraid-node genpsk"), "{missing}");
    let psk = file.with_file_name("both.psk");
    fs::write(&psk, PrivateKey([5; 32]).to_text().as_str()).unwrap();
    fs::set_permissions(&psk, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(secrets().unwrap().psk.unwrap().0, [5; 32]);
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
}
