//! Command lines with a secret in them, by the grammars that people write them in.

use proptest::prelude::*;
use proptest::sample::select;

/// The words of a command, and the secret within them.
#[derive(Clone, Debug)]
pub struct Typed {
    pub words: Vec<String>,
    pub secret: String,
}

pub const NAMES: &[&str] = &[
    "api_key",
    "api-key",
    "token",
    "hub_token",
    "HF_TOKEN",
    "WANDB_API_KEY",
    "password",
    "passwd",
    "secret",
    "client_secret",
    "passphrase",
    "cred",
    "creds",
    "jwt",
    "bearer",
    "cookie",
    "otp",
    "signature",
    "access-code",
    "pass",
    "SSHPASS",
    "MY_CRED",
    "DB_PASS",
    "SERVICE_JWT",
    "SESSION_COOKIE",
    "MFA_OTP",
    "X-Api-Key",
    "accountKey",
    "AWS_SECRET_ACCESS_KEY",
    "dbPassword",
    "pwd",
    "auth",
    "wandb.key",
];
pub const SCHEMES: &[&str] =
    &["https", "http", "postgres", "postgresql+psycopg2", "redis", "s3", "git+https", "amqps", "ftp"];
/// `¤` is the name, `§` the secret, `¥` a scheme; words are apart by `¦`.
pub const SHAPES: &[&str] = &[
    // Flags.
    "--¤¦§",
    "--¤=§",
    "-¤¦§",
    "-¤=§",
    "-D¤=§",
    "--opts=a=1,¤=§",
    "--opts¦a=1,¤=§,b=2",
    "--env=¤=§",
    "-e¦¤=§",
    "-e¤=§",
    "+¤=§",
    "++cfg.¤=§",
    "--¤=\"§\"",
    "--¤¦'§'",
    "--set¦¤:§",
    "config¦set¦¤¦§",
    "--¤=§;x",
    "--¤=§,x",
    // Environments and scripts.
    "env¦¤=§¦t",
    "¤=§",
    "sh¦-c¦¤=§ t",
    "bash¦-lc¦export ¤='§'; t",
    "sh¦-c¦t --¤ § && u",
    "sh¦-c¦t --¤ \"§\"|u",
    "sh¦-c¦t --¤='§';u",
    "sh¦-c¦(cd x; ¤=§ t) &",
    "python¦-c¦t(¤='§', x=1)",
    "sh¦-c¦curl \"¥://h/x?a=1&¤=§\" | t",
    "sh¦-c¦curl -H 'Authorization: Bearer §' ¥://h",
    "sh¦-c¦curl -H \"X-Api-Key: §\" h",
    "sh¦-c¦curl -d '{\"¤\": \"§\"}' h",
    "sh¦-c¦curl -d \"{\\\"¤\\\": \\\"§\\\"}\" h",
    "sh¦-c¦mysql -p§ db",
    // Headers.
    "-H¦Authorization: Basic §",
    "-H¦Authorization: Bearer §",
    "-H¦authorization: token §",
    "-H¦X-Api-Key: §",
    "-H¦Cookie: a=b; c=§",
    "--header=X-Auth-Token: §",
    "-H¦Proxy-Authorization:Basic §",
    "-H¦Authorization:¦Bearer¦§",
    // JSON and YAML.
    "{\"¤\": \"§\"}",
    "--x={\"a\":{\"¤\":\"§\"},\"b\":1}",
    "{\"a\":[{\"¤\":\"§\"}]}",
    "{'¤': '§'}",
    "{\"¤\":[\"§\",\"x\"]}",
    "{\\\"¤\\\":\\\"§\\\"}",
    "[\"t\", \"--¤\", \"§\", \"x\"]",
    "--x={\"args\":[\"--¤\",\"§\"]}",
    "['--¤', '§']",
    "[\\\"--¤\\\", \\\"§\\\"]",
    "sh¦-c¦t '[\"--¤\",\"§\"]'",
    "[{\"name\":\"HF_TOKEN\",\"value\":\"§\"}]",
    "¤: §",
    "a: 1\n¤: §\nb: 2",
    "{¤: §, b: 1}",
    "¤: \"§\"",
    "x=1 ¤=§ y=2",
    "cfg[\"¤\"]=§",
    "<¤>§</¤>",
    // Addresses.
    "¥://u:§@h/x",
    "¥://u:§@h/x?token=1&b=2",
    "¥://:§@h:80/x#f",
    "https://§@github.com/x.git",
    "¥://u:ab/§@h/x",
    "¥://u:§%40z@h/x",
    "¥://h/x?¤=§",
    "¥://h/x?a=1&¤=§&b=2",
    "¥://h/x#¤=§&b=2",
    "--url=¥://u:§@h/x",
    "¥://h/x?a=1;¤=§",
    "¥://u:p@a,¥://u:§@b",
    "https://h/x?sv=1&sig=§&se=2",
    "https://h/x?X-Amz-Signature=§",
    "u:§@h:5432/db",
    "--next=https%3A%2F%2Fu%3A§%40h%2F",
    "--next=https%3A%2F%2Fh%2F%3F¤%3D§%26x%3D1",
    "https://§:x-oauth-basic@github.com/x",
    // Connection strings.
    "Server=h;Password=§;User=u",
    "Server=h; Password=§; User=u",
    "Protocol=https;AccountKey=§==;Suffix=x",
    "AccountKey=§;Suffix=x",
    "Server=h;Uid=u;Pwd=§;",
    "Driver={SQL Server};Server=h; PWD=§; Port=1",
    "Pwd=§;Server=h",
    "host=h password=§ user=u",
    "jdbc:sqlserver://h:1;user=u;password=§;x=y",
    "jdbc:mysql://h/d?user=u&password=§",
    "jdbc:oracle:thin:u/§@h:1521:x",
    "Endpoint=sb://h/;SharedAccessKey=§",
    // Programs.
    "sshpass¦-p¦§¦ssh¦h",
    "sshpass¦-p§¦ssh",
    "mysql¦-p§",
    "redis-cli¦-a¦§",
    "curl¦-u¦me:§",
    "wandb¦login¦§",
    "docker¦login¦-u¦me¦-p¦§",
    // Tokens by their look, and where a name says nothing.
    "hf_§§",
    "--note=ghp_§§",
    "--x¦glpat-§§1",
    "run¦xoxb-1-§§",
    "sk-proj-§§1",
    "-----BEGIN PRIVATE KEY-----\n§\n",
    "dop_v1_§§§§",
    "https://hooks.slack.com/services/T0/B0/§",
    "https://h/npm_§§§§/x",
];

/// A secret of letters and digits; where it may be, it begins as a variable or a template does.
fn secret() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9]{5}[0-9][a-z][a-zA-Z0-9]{4,12}"
}

/// Shapes in which a secret may begin with `$` or `{`: no shell and no address reads them.
pub fn may_lead(shape: &str) -> bool {
    ["--¤¦§", "--¤=§", "-¤¦§", "env¦¤=§¦t", "¤=§", "--opts=a=1,¤=§", "--env=¤=§", "-H¦X-Api-Key: §"].contains(&shape)
}

pub fn typed() -> impl Strategy<Value = Typed> {
    let lead = select(vec!["", "", "$", "{", "$$"]);
    (select(SHAPES.to_vec()), select(NAMES.to_vec()), select(SCHEMES.to_vec()), secret(), lead, any::<bool>()).prop_map(
        |(shape, name, scheme, secret, lead, surrounded)| {
            let written = if may_lead(shape) { format!("{lead}{secret}") } else { secret.clone() };
            let text = shape.replace('¤', name).replace('¥', scheme).replace('§', &written);
            let mut words: Vec<String> = text.split('¦').map(str::to_owned).collect();
            if surrounded {
                words.insert(0, "torchrun".to_owned());
                words.extend(["--lr", "1e-4", "train.py"].map(str::to_owned));
            }
            Typed { words, secret }
        },
    )
}
